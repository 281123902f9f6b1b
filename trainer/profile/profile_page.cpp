// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trainer/memory/estimate.hpp"
#include "trainer/profile/profile_charts.hpp"
#include "trainer/profile/profile_html.hpp"
#include "trainer/profile/profile_style.hpp"
#include "trainer/profile/views.hpp"

namespace dp::trainer {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr std::size_t kMostRanks = 64;  // of a table

// A cell without a figure.
constexpr std::string_view kNone = R"(<span class="none">–</span>)";

// Milliseconds, with as many digits in all of a page.
std::string page_ms(const Profile& profile, double seconds) {
    return fmt::format("{:.{}f}", 1e3 * seconds, profile.seconds < 0.1 ? 3 : profile.seconds < 1 ? 2 : 1);
}

std::string page_percent(double part, double whole) {
    return whole > 0 ? fmt::format("{:.1f}", 100 * part / whole) : std::string(kNone);
}

std::string page_rate(double amount, double seconds) {
    return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", amount / seconds / 1e9) : std::string(kNone);
}

std::string page_peak(const ProfileRow& row) {
    const auto share = row.share_of_peak();
    return share ? fmt::format("{:.0f}", 100 * *share) : std::string(kNone);
}

// By the lower one of the two roofs.
std::string page_bound(const ProfileRow& row, const std::optional<Peaks>& peaks) {
    if (!peaks || row.least <= 0) return std::string(kNone);
    return row.flops / peaks->flops > row.bytes / peaks->bytes ? "arithmetic" : "memory";
}

std::string layer_text(std::string_view layer) {
    return layer.empty() ? R"(<span class="none">no layer</span>)" : escaped(layer);
}

double part_of(const ProfileRow& row, Part part) {
    return row.seconds[static_cast<std::size_t>(part)];
}

std::string page_section(std::string_view id, std::string_view head, std::string_view content) {
    return fmt::format(
        "<section id=\"{0}\" aria-labelledby=\"{0}-head\"><h2 id=\"{0}-head\">{1}</h2>\n{2}</section>\n", id,
        head, content);
}

std::string figure(std::string_view name, std::string_view value, std::string_view kind = "") {
    return fmt::format("<div{}><dt>{}</dt><dd>{}</dd></div>", kind, name, value);
}

std::string headline(const Profile& profile) {
    std::string html = fmt::format("<header><h1>Training profile</h1>\n<p>{}</p>\n<dl class=\"figures\">",
                                   escaped(profile.what));
    if (profile.seconds > 0) html += figure("a step", short_time(profile.seconds), R"( class="main")");
    if (profile.median_without > 0)
        html += figure("a step before, not profiled", short_time(profile.median_without));
    if (!profile.memory.curve.empty())
        html += figure("memory at the peak", size_text(profile.memory.peak_bytes()));
    if (profile.ranks.size() > 1) html += figure("ranks", std::to_string(profile.ranks.size()));
    html += "</dl>\n<p class=\"soft\">";
    html += profile.seconds > 0
                ? fmt::format(
                      "Steps {} to {}, the mean of them, as this rank took them. The profile itself takes "
                      "{} of a step.",
                      profile.steps.first, profile.steps.last, overhead_text(profile))
                : "No step was profiled.";
    return html + "</p></header>\n";
}

std::string advice_section(const Profile& profile) {
    std::string items;
    for (const Advice& advice : profile.advice) {
        items += fmt::format("<li><strong>{:.1f}x</strong> {}", advice.gain, escaped(advice.text));
        for (const std::string& option : advice.options)
            items += fmt::format(" <code>{}</code>", escaped(option));
        if (!advice.leave_out.empty())
            items += fmt::format("; leave out <code>{}</code>", escaped(advice.leave_out));
        items += "</li>\n";
    }
    return page_section("advice", "Advice",
                        items.empty()
                            ? fmt::format(R"(<p class="advice">None: {}.</p>)", escaped(no_advice(profile)))
                            : R"(<div class="advice"><p>Predicted gain in samples a second:</p><ul>)" +
                                  items + "</ul></div>");
}

std::string time_section(const Profile& profile) {
    if (profile.seconds <= 0) return "";
    Rows rows;
    const auto add_row = [&](std::string_view look, std::string_view name, double seconds) {
        rows.push_back(
            {swatch(look, name), page_ms(profile, seconds), page_percent(seconds, profile.seconds)});
    };
    for (const Part part : kParts)
        add_row(name_of(part), name_of(part), profile.parts[static_cast<std::size_t>(part)]);
    add_row("between", "between operations", profile.other);
    std::string html = step_bar(profile);
    if (profile.hidden && profile.ranks.size() > 1)
        html += fmt::format("<p>Another {} ms of communication a step were hidden behind computation.</p>\n",
                            page_ms(profile, *profile.hidden));
    return page_section("time", "Where the time of a step goes",
                        html + html_table("Parts of a step", {"<part", "ms", "%"}, rows));
}

std::string operations_section(const Profile& profile) {
    if (profile.operations.empty()) return "";
    Rows rows;
    for (const ProfileRow& row : profile.operations)
        rows.push_back({escaped(row.name), fmt::format("{:.4g}", row.calls), page_ms(profile, row.total()),
                        page_percent(row.total(), profile.seconds), page_rate(row.flops, row.total()),
                        page_rate(row.bytes, row.total()), page_peak(row), page_bound(row, profile.peaks)});
    return page_section(
        "operations", "Operations",
        html_table("Operations of a step, the longest first",
                   {"<operation", "calls", "ms", "% of step", "GFLOP/s", "GB/s", "% of peak", "<limited by"},
                   rows));
}

std::string layers_section(const Profile& profile) {
    if (profile.layers.empty()) return "";
    double longest = 0;
    for (const ProfileRow& row : profile.layers)
        longest = std::max(longest, part_of(row, Part::forward) + part_of(row, Part::backward));
    Rows rows;
    for (const ProfileRow& row : profile.layers) {
        const double forward = part_of(row, Part::forward), backward = part_of(row, Part::backward);
        rows.push_back({layer_text(row.name), page_ms(profile, forward), page_ms(profile, backward),
                        cell_bar({{"forward", forward}, {"backward", backward}}, longest),
                        page_percent(row.total(), profile.seconds), page_rate(row.flops, row.total()),
                        page_rate(row.bytes, row.total()), page_peak(row)});
    }
    return page_section("layers", "Layers",
                        html_table("Layers, the longest first; the bar: forward, then backward with stripes",
                                   {"<layer", "forward, ms", "backward, ms", "<of the longest", "% of step",
                                    "GFLOP/s", "GB/s", "% of peak"},
                                   rows));
}

std::string roofline_section(const Profile& profile) {
    const std::string chart = roofline_chart(profile);
    if (chart.empty()) return "";
    return page_section(
        "roofline", "Roofline",
        R"(<p class="soft">Under the slope memory limits an operation, under the flat roof arithmetic does.
The larger a point, the longer a part of a step it takes. A point above the slope had its data in caches.
Operations without products are in the table of operations, with their GB/s.</p>
)" + chart);
}

std::string memory_section(const MemoryProfile& memory) {
    if (memory.curve.empty()) return "";
    Rows kinds, largest;
    for (const MemoryKind kind : kMemoryKinds) {
        const auto at = static_cast<std::size_t>(kind);
        kinds.push_back({swatch(look_of(kind), name_of(kind)), size_text(memory.kinds[at]),
                         size_text(memory.curve[memory.peak][at])});
    }
    for (const ProfiledMemory& one : memory.largest)
        largest.push_back({std::string(name_of(one.kind)), size_text(one.bytes), layer_text(one.layer),
                           fmt::format("{} to {}", one.first, one.last)});
    return page_section(
        "memory", "Memory of a step",
        memory_chart(memory) +
            html_table("What it holds", {"<kind", "all that a step uses", "at the peak"}, kinds) +
            html_table("The largest allocations at the peak: " + peak_text(memory),
                       {"<kind", "bytes", "<written by", "<in use at operations"}, largest));
}

// The ranks to show: all in their order, or those that wait longest and shortest.
std::vector<std::size_t> ranks_to_show(const std::vector<RankTimes>& all) {
    std::vector<std::size_t> ranks(all.size());
    std::iota(ranks.begin(), ranks.end(), std::size_t{0});
    if (all.size() <= kMostRanks) return ranks;
    std::ranges::sort(ranks, {}, [&](std::size_t rank) { return std::pair(-all[rank].communication, rank); });
    ranks.erase(ranks.begin() + kMostRanks / 2, ranks.end() - kMostRanks / 2);
    return ranks;
}

std::string ranks_section(const Profile& profile) {
    if (profile.ranks.size() < 2) return "";
    double longest = 0;
    for (const RankTimes& one : profile.ranks) longest = std::max(longest, one.load + one.communication);
    Rows rows;
    for (const std::size_t rank : ranks_to_show(profile.ranks)) {
        const RankTimes& one = profile.ranks[rank];
        rows.push_back({std::to_string(rank), page_ms(profile, one.step), page_ms(profile, one.communication),
                        page_ms(profile, one.load), page_percent(one.communication, one.step),
                        cell_bar({{"load", one.load}, {"communication", one.communication}}, longest)});
    }
    std::string html =
        "<p>The rank with the shortest communication waits for nobody: the others wait for it.</p>\n";
    if (profile.ranks.size() > kMostRanks)
        html += fmt::format(
            R"(<p>Of {0} ranks, these are the {1} with the longest communication and the {1} with the shortest.</p>
)",
            profile.ranks.size(), kMostRanks / 2);
    return page_section(
        "ranks", "Ranks",
        html + html_table("Times of a step by rank; the bar: load, then communication with stripes",
                          {"<rank", "step, ms", "communication, ms", "load, ms", "% communication",
                           "<of the longest"},
                          rows));
}

std::string page_footer(const Profile& profile) {
    return fmt::format(R"(<footer><p>Version {}.</p>
<p>Of peak: the least time that the measured peaks of this device allow for the arithmetic and the memory traffic that the
shapes ask for, by the time it took; data in caches can come faster.</p>
<p>Between operations: time of a step in which no operation ran, in the program itself.</p>
<p>Hidden communication: sums in progress while the rank computed, so that they cost no time of a step.</p>
<p>Roofline: S. Williams, A. Waterman and D. Patterson, “Roofline: an insightful visual performance model for multicore
architectures”, Communications of the ACM 52 (4), 2009.</p></footer>
)",
                       escaped(profile.version));
}

std::string page_head(const Profile& profile) {
    return fmt::format(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>Training profile: {}</title>
<style>{}{}</style>
</head>
)",
                       escaped(profile.what), kProfileStyle, look_rules());
}

}  // namespace

std::string profile_page(const Profile& profile) {
    return page_head(profile) + "<body>\n" + look_patterns() + headline(profile) + "<main>\n" +
           advice_section(profile) + time_section(profile) + operations_section(profile) +
           layers_section(profile) + roofline_section(profile) + memory_section(profile.memory) +
           ranks_section(profile) + "</main>\n" + page_footer(profile) + "</body>\n</html>\n";
}

}  // namespace dp::trainer
