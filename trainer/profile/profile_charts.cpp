// SPDX-License-Identifier: Apache-2.0
#include "trainer/profile/profile_charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/memory/estimate.hpp"
#include "trainer/profile/profile_html.hpp"

namespace dp::trainer {
namespace {

struct Look {
    std::string_view name, colour, ink, pattern;  // the pattern: lines in a square of 8
};

// The colours that Okabe and Ito chose for colour-blind people, as in the page of dpctl report.
constexpr std::array<Look, kParts.size() + 1> kLooks{{
    {"load", "#56b4e9", "#000", "M1 2h2M5 6h2"},
    {"forward", "#009e73", "#000", ""},
    {"backward", "#e69f00", "#000", "M-1 1L1-1M0 8L8 0M7 9L9 7"},
    {"optimizer", "#cc79a7", "#000", "M0 4H8"},
    {"communication", "#0072b2", "#fff", "M-1 7L1 9M0 0L8 8M7-1L9 1"},
    {"between", "#c4c4c4", "#000", "M4 0V8"},
}};

// Of a chart that grows with the page: in units of its view box.
constexpr double kWidth = 760;
constexpr double kLetter = 7;             // the width of a letter, about
constexpr double kLine = 15;              // of text
constexpr std::size_t kMostPoints = 400;  // of the memory's curve

// From values to places; `scale` is the identity or a logarithm.
struct Axis {
    double low, high, from, to;
    double (*scale)(double) = [](double value) { return value; };

    double at(double value) const {
        return from + (to - from) * (scale(value) - scale(low)) / (scale(high) - scale(low));
    }
};

std::string open_chart(double height, std::string_view title, std::string_view description) {
    return fmt::format(R"(<div class="across" tabindex="0" role="region" aria-label="{1}">)"
                       R"(<svg class="chart" viewBox="0 0 {2} {0}" role="img">)"
                       "<title>{1}</title><desc>{3}</desc>\n",
                       height, escaped(title), kWidth, escaped(description));
}

std::string chart_text(double x, double y, std::string_view anchor, std::string_view text) {
    return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor,
                       escaped(text));
}

std::string grid_line(double x1, double y1, double x2, double y2) {
    return fmt::format(R"(<path class="grid" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>)", x1, y1, x2, y2);
}

std::string letter_of(std::string_view name) {
    return name == "between operations" ? "–" : std::string(1, static_cast<char>(name[0] - 'a' + 'A'));
}

// The name where there is room for it, or its letter, or nothing; `share` of a bar as wide as a narrow page.
std::string bar_label(std::string_view name, double share) {
    constexpr double kNarrow = 640;
    const std::string text = fmt::format("{} {:.0f} %", name, 100 * share);
    if (static_cast<double>(text.size() + 1) * kLetter < share * kNarrow) return text;
    return share * kNarrow > 2 * kLetter ? letter_of(name) : "";
}

// 1, 10, 100; with 2 and 5 between them where there are few.
std::vector<double> decades(double low, double high) {
    std::vector<double> ticks;
    for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10)
        for (const double times : {1, 2, 5})
            if (power * times >= low && power * times <= high && (times == 1 || high < 1000 * low))
                ticks.push_back(power * times);
    return ticks;
}

// Of about five ticks, a round number.
double tick_step(double high) {
    const double power = std::pow(10, std::floor(std::log10(std::max(high / 5, 1.0))));
    return power * (high > 25 * power ? 5 : high > 10 * power ? 2 : 1);
}

std::int64_t bytes_at(const MemoryProfile& memory, std::size_t operation) {
    const auto& now = memory.curve[operation];
    return std::accumulate(now.begin(), now.end(), std::int64_t{0});
}

constexpr double kRoofTop = 14, kRoofBottom = 380, kRoofLeft = 62, kRoofRight = 750;
constexpr double kRoofLabel = 220;  // the room right of the last point
constexpr double kLabelGap = 18;    // between point and label

struct RoofPoint {
    const ProfileRow* row;
    double x, y, label_x, label_y;  // places
    double column;                  // where its column begins
};

// Labels are right of their points. Those of a column that would overlap are one below the other, right of all their points.
std::vector<RoofPoint> roof_points(const std::vector<const ProfileRow*>& rows, const Axis& x, const Axis& y) {
    std::vector<RoofPoint> points;
    for (const ProfileRow* row : rows) {
        const double right = x.at(row->flops / row->bytes), height = y.at(row->flops / row->total());
        points.push_back({row, right, height, right, height, right});
    }
    std::ranges::sort(points, {}, &RoofPoint::x);
    for (std::size_t i = 1; i < points.size(); ++i) {
        const RoofPoint& left = points[i - 1];
        const double label = kLabelGap + kLetter * static_cast<double>(left.row->name.size());
        if (points[i].x < left.x + label) points[i].column = left.column;
    }
    std::ranges::sort(points, {}, [](const RoofPoint& point) { return std::pair(point.column, point.y); });
    for (std::size_t i = 1, first = 0; i < points.size(); ++i) {
        RoofPoint& point = points[i];
        const double next = points[i - 1].label_y + kLine;
        if (point.column > points[i - 1].column || point.y >= next) {
            first = i;
            continue;
        }
        point.label_y = next;
        const double right = std::max(point.x, points[first].label_x);
        for (std::size_t k = first; k <= i; ++k) points[k].label_x = right;
    }
    return points;
}

std::string roof_point(const RoofPoint& point, double step) {
    const double radius = 3 + 10 * std::sqrt(step > 0 ? std::min(point.row->total() / step, 1.0) : 0);
    return fmt::format(R"(<path class="leader" d="M{0:.1f} {1:.1f}L{2:.1f} {3:.1f}"/>)"
                       R"(<circle class="point" cx="{0:.1f}" cy="{1:.1f}" r="{4:.1f}"/>)",
                       point.x, point.y, point.label_x + kLabelGap, point.label_y, radius) +
           chart_text(point.label_x + kLabelGap + 3, point.label_y + 4, "start", point.row->name);
}

// Steps from point to point, a kind upon the other; its name where it is thickest.
std::string memory_areas(const MemoryProfile& memory, const Axis& x, const Axis& y) {
    const auto points = thinned(memory, kMostPoints);
    const auto end_of = [&](std::size_t i) { return x.at(static_cast<double>(points[i].end)); };
    std::string areas, labels;
    std::vector<std::int64_t> below(points.size(), 0);
    for (const MemoryKind kind : kMemoryKinds) {
        const auto bytes_of = [&](std::size_t i) {
            return memory.curve[points[i].operation][static_cast<std::size_t>(kind)];
        };
        const auto height = [&](std::int64_t bytes) { return y.at(static_cast<double>(bytes)); };
        std::string upper, lower;
        std::size_t thickest = 0;
        for (std::size_t i = 0; i < points.size(); ++i) {
            lower.insert(0, fmt::format("V{:.1f}H{:.1f}", height(below[i]), i == 0 ? x.from : end_of(i - 1)));
            below[i] += bytes_of(i);
            upper += fmt::format("V{:.1f}H{:.1f}", height(below[i]), end_of(i));
            if (bytes_of(i) > bytes_of(thickest)) thickest = i;
        }
        const std::int64_t most = bytes_of(thickest);
        if (most == 0) continue;
        areas +=
            fmt::format(R"(<path class="{}" d="M{} {}{}{}Z"/>)", look_of(kind), x.from, y.from, upper, lower);
        if (y.from - height(most) < kLine) continue;
        labels += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle" class="{}">{}</text>)",
                              std::clamp(end_of(thickest), x.from + 45, x.to - 45),
                              height(below[thickest] - most / 2) + 4, look_of(kind), name_of(kind));
    }
    return areas + labels;
}

}  // namespace

std::string look_patterns() {
    std::string svg = R"(<svg class="patterns" width="0" height="0" aria-hidden="true">)";
    for (const Look& look : kLooks)
        svg += fmt::format(R"(<pattern id="look-{}" width="8" height="8" patternUnits="userSpaceOnUse">)"
                           R"(<rect width="8" height="8" fill="{}"/>)"
                           R"(<path d="{}" stroke="{}" stroke-opacity="0.45"/></pattern>)",
                           look.name, look.colour, look.pattern, look.ink);
    return svg + "</svg>\n";
}

std::string look_rules() {
    std::string css;
    for (const Look& look : kLooks)
        css += fmt::format("  .{0} {{ fill: url(#look-{0}); }} text.{0} {{ fill: {1}; stroke: {2}; }}\n",
                           look.name, look.ink, look.colour);
    return css;
}

std::string_view look_of(MemoryKind kind) {
    // In the order of kMemoryKinds: what a part of the step is about has its look.
    static constexpr std::array<Part, kMemoryKinds.size()> kAlike{Part::communication, Part::backward,
                                                                  Part::optimizer, Part::forward, Part::load};
    return name_of(kAlike[static_cast<std::size_t>(kind)]);
}

std::string swatch(std::string_view look, std::string_view name) {
    return fmt::format(R"(<svg class="swatch" width="26" height="18" aria-hidden="true">)"
                       R"(<rect width="26" height="18" class="{0}"/>)"
                       R"(<text x="13" y="13.5" text-anchor="middle" class="{0}">{1}</text></svg>{2})",
                       look, letter_of(name), name);
}

std::string cell_bar(const std::vector<BarPiece>& pieces, double whole) {
    constexpr double kCell = 120;
    std::string svg = fmt::format(R"(<svg width="{}" height="12" aria-hidden="true">)", kCell);
    double x = 0;
    for (const auto& [look, value] : pieces) {
        const double width = whole > 0 ? kCell * value / whole : 0;
        if (width >= 0.05)
            svg += fmt::format(R"(<rect x="{:.1f}" width="{:.1f}" height="12" class="{}"/>)", x, width, look);
        x += width;
    }
    return svg + "</svg>";
}

std::string step_bar(const Profile& profile) {
    double whole = std::max(profile.other, 0.0);
    for (const double seconds : profile.parts) whole += seconds;
    std::string pieces, description;
    double x = 0;
    const auto add_piece = [&](std::string_view look, std::string_view name, double seconds) {
        const double share = whole > 0 ? std::max(seconds, 0.0) / whole : 0;
        if (share == 0) return;
        pieces += fmt::format(R"(<svg x="{0:.3f}%" width="{1:.3f}%" height="44">)"
                              R"(<rect width="100%" height="44" class="{2}"/>)"
                              R"(<text x="50%" y="27" text-anchor="middle" class="{2}">{3}</text></svg>)",
                              100 * x, 100 * share, look, bar_label(name, share));
        description += fmt::format("{}{} {:.1f} %", description.empty() ? "" : ", ", name, 100 * share);
        x += share;
    };
    for (const Part part : kParts)
        add_piece(name_of(part), name_of(part), profile.parts[static_cast<std::size_t>(part)]);
    add_piece("between", "between operations", profile.other);
    return fmt::format(R"(<svg class="bar" width="100%" height="44" role="img">)"
                       "<title>Where the time of a step goes</title><desc>{}</desc>{}</svg>\n",
                       description, pieces);
}

std::string roofline_chart(const Profile& profile) {
    std::vector<const ProfileRow*> rows;
    for (const ProfileRow& row : profile.operations)
        if (row.flops > 0 && row.bytes > 0 && row.total() > 0) rows.push_back(&row);
    if (!profile.peaks || profile.peaks->flops <= 0 || profile.peaks->bytes <= 0 || rows.empty()) return "";
    const Peaks& peaks = *profile.peaks;
    const double ridge = peaks.flops / peaks.bytes;
    double least = ridge, most = ridge, slowest = peaks.flops, quickest = peaks.flops;
    std::string description =
        fmt::format("Peaks: {:.1f} GFLOP/s and {:.1f} GB/s, which meet at {:.3g} FLOP/byte.",
                    peaks.flops / 1e9, peaks.bytes / 1e9, ridge);
    for (const ProfileRow* row : rows) {
        const double intensity = row->flops / row->bytes, rate = row->flops / row->total();
        least = std::min(least, intensity);
        most = std::max(most, intensity);
        slowest = std::min(slowest, rate);
        quickest = std::max(quickest, rate);
        description +=
            fmt::format(" {}: {:.3g} FLOP/byte, {:.1f} GFLOP/s.", row->name, intensity, rate / 1e9);
    }
    const auto logarithm = [](double value) { return std::log(value); };
    const double low = least / 4, room = kRoofLabel / (kRoofRight - kRoofLeft - kRoofLabel);
    const Axis x{low, most * std::pow(most / low, room), kRoofLeft, kRoofRight, logarithm};
    const Axis y{slowest / 4, quickest * 2, kRoofBottom, kRoofTop, logarithm};

    std::string svg = open_chart(430, "Roofline of the operations that multiply", description);
    for (const double tick : decades(x.low, x.high))
        svg += grid_line(x.at(tick), kRoofTop, x.at(tick), kRoofBottom) +
               chart_text(x.at(tick), kRoofBottom + 18, "middle", fmt::format("{:.7g}", tick));
    for (const double tick : decades(y.low / 1e9, y.high / 1e9))
        svg += grid_line(kRoofLeft, y.at(tick * 1e9), kRoofRight, y.at(tick * 1e9)) +
               chart_text(kRoofLeft - 6, y.at(tick * 1e9) + 4, "end", fmt::format("{:.7g}", tick));
    svg += chart_text((kRoofLeft + kRoofRight) / 2, kRoofBottom + 40, "middle",
                      "arithmetic intensity, FLOP/byte");
    svg += fmt::format(
        "<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">GFLOP/s</text>\n",
        (kRoofTop + kRoofBottom) / 2);
    // The sloping roof begins where it enters the chart.
    const double enters = std::max(x.low, y.low / peaks.bytes);
    const double x1 = x.at(enters), y1 = y.at(enters * peaks.bytes), x2 = x.at(ridge), y2 = y.at(peaks.flops);
    svg += fmt::format(R"(<path class="roof" d="M{:.1f} {:.1f}L{:.1f} {:.1f}H{}"/>)", x1, y1, x2, y2,
                       kRoofRight);
    svg += chart_text(x2 - 6, y2 - 4, "end", fmt::format("peak {:.1f} GFLOP/s", peaks.flops / 1e9));
    svg +=
        fmt::format("<text transform=\"translate({:.1f} {:.1f}) rotate({:.1f})\">peak {:.1f} GB/s</text>\n",
                    x1 + (x2 - x1) * 0.1, y1 + (y2 - y1) * 0.1 - 7,
                    std::atan2(y2 - y1, x2 - x1) * 180 / std::acos(-1), peaks.bytes / 1e9);
    for (const RoofPoint& point : roof_points(rows, x, y)) svg += roof_point(point, profile.seconds);
    return svg + "</svg></div>\n";
}

std::vector<CurvePoint> thinned(const MemoryProfile& memory, std::size_t most) {
    std::vector<CurvePoint> points;
    const std::size_t size = memory.curve.size(), run = (size + most - 1) / most;
    for (std::size_t first = 0; first < size; first += run) {
        points.push_back({first, std::min(first + run, size)});
        for (std::size_t at = first; at < points.back().end; ++at)
            if (bytes_at(memory, at) > bytes_at(memory, points.back().operation))
                points.back().operation = at;
    }
    return points;
}

std::string peak_text(const MemoryProfile& memory) {
    return fmt::format("{} at operation {}, {}{}", size_text(memory.peak_bytes()), memory.peak,
                       memory.peak_operation, memory.peak_layer.empty() ? "" : " of " + memory.peak_layer);
}

std::string memory_chart(const MemoryProfile& memory) {
    constexpr double kTop = 52, kBottom = 290, kLeft = 74, kRight = 750;
    const std::size_t operations = memory.curve.size();
    const auto highest = static_cast<double>(std::max({memory.held, memory.peak_bytes(), std::int64_t{1}}));
    const Axis x{0, static_cast<double>(operations), kLeft, kRight};
    const Axis y{0, highest, kBottom, kTop};
    std::string svg =
        open_chart(338, "Memory in use at each operation of a step",
                   fmt::format("{} operations; peak: {}; held: {}. The tables below have its parts.",
                               operations, peak_text(memory), size_text(memory.held)));
    // Ticks of whole KiB, MiB or GiB.
    const double unit = std::pow(1024, std::floor(std::log(highest) / std::log(1024)));
    const double step = unit * (highest < 2 * unit ? 0.5 : tick_step(highest / unit));
    for (double tick = 0; tick <= highest; tick += step)
        svg += grid_line(kLeft, y.at(tick), kRight, y.at(tick)) +
               chart_text(kLeft - 6, y.at(tick) + 4, "end", size_text(static_cast<std::int64_t>(tick)));
    const double count = tick_step(static_cast<double>(operations));
    for (double tick = 0; tick < static_cast<double>(operations); tick += count)
        svg += chart_text(x.at(tick), kBottom + 18, "middle", fmt::format("{}", tick));
    svg += chart_text((kLeft + kRight) / 2, kBottom + 40, "middle", "operation of the step") +
           memory_areas(memory, x, y);
    if (memory.held > 0) {
        const double height = y.at(static_cast<double>(memory.held));
        svg += fmt::format(R"(<path class="held" d="M{} {:.1f}H{}"/>)", kLeft, height, kRight) +
               chart_text(kRight - 4, height - 5, "end", "held: " + size_text(memory.held));
    }
    const double at = x.at(static_cast<double>(memory.peak) + 0.5);
    svg += fmt::format(R"(<path class="leader" d="M{0:.1f} 24V{1:.1f}"/>)"
                       R"(<circle class="mark" cx="{0:.1f}" cy="{1:.1f}" r="4"/>)",
                       at, y.at(static_cast<double>(memory.peak_bytes())));
    const auto width = [](const std::string& text) { return kLetter * static_cast<double>(text.size()); };
    std::string peak = "peak: " + peak_text(memory);
    if (width(peak) > kRight) peak = "peak: " + size_text(memory.peak_bytes());
    svg += chart_text(std::max(std::min(at - 4, kRight - width(peak)), 4.0), 18, "start", peak);
    return svg + "</svg></div>\n";
}

}  // namespace dp::trainer
