// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "trainer/memory/estimate.hpp"
#include "trainer/profile/views.hpp"

namespace dp::trainer {
namespace {

constexpr std::size_t kRows = 15;   // of a table
constexpr double kStraggles = 0.1;  // of a step, more than others is a word worth

std::string percent(double part, double whole) {
    return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : std::string("-");
}

// A rate in 10^9 a second; "-" for none.
std::string giga(double amount, double seconds) {
    return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", amount / seconds / 1e9) : std::string("-");
}

std::string share_text(const ProfileRow& row) {
    const auto share = row.share_of_peak();
    return share ? fmt::format("{:.0f} %", 100 * *share) : std::string("-");
}

double seconds_of(const ProfileRow& row, Part part) {
    return row.seconds[static_cast<std::size_t>(part)];
}

std::string parts_line(const Profile& profile) {
    std::string line;
    const auto add = [&](std::string_view name, double seconds) {
        line += fmt::format("{}{} {}", line.empty() ? "" : ", ", name, percent(seconds, profile.seconds));
    };
    for (const Part part : kParts)
        if (const double seconds = profile.parts[static_cast<std::size_t>(part)]; seconds > 0)
            add(name_of(part), seconds);
    add("between operations", profile.other);
    if (profile.hidden && profile.ranks.size() > 1)
        line += fmt::format("; at least {} of communication beside computation", short_time(*profile.hidden));
    return line;
}

std::string operations_table(const Profile& profile) {
    std::string table = fmt::format("\n  {:<30}{:>7}{:>11}{:>9}{:>10}{:>8}{:>10}\n", "operation", "calls",
                                    "time", "step", "GFLOP/s", "GB/s", "of peak");
    for (std::size_t i = 0; i < std::min(kRows, profile.operations.size()); ++i) {
        const ProfileRow& row = profile.operations[i];
        table += fmt::format("  {:<30}{:>7.4g}{:>11}{:>9}{:>10}{:>8}{:>10}\n", row.name, row.calls,
                             short_time(row.total()), percent(row.total(), profile.seconds),
                             giga(row.flops, row.total()), giga(row.bytes, row.total()), share_text(row));
    }
    if (profile.operations.size() > kRows)
        table += fmt::format("  and {} more\n", profile.operations.size() - kRows);
    return table;
}

std::string layers_table(const Profile& profile) {
    std::string table = fmt::format("\n  {:<30}{:>11}{:>11}{:>9}{:>10}{:>10}\n", "layer", "forward",
                                    "backward", "step", "GFLOP/s", "of peak");
    std::size_t rows = 0, left = 0;
    for (const ProfileRow& row : profile.layers) {
        if (rows++ >= kRows) {
            ++left;
            continue;
        }
        table += fmt::format(
            "  {:<30}{:>11}{:>11}{:>9}{:>10}{:>10}\n", row.name.empty() ? "(no layer)" : row.name,
            short_time(seconds_of(row, Part::forward)), short_time(seconds_of(row, Part::backward)),
            percent(row.total(), profile.seconds), giga(row.flops, row.total()), share_text(row));
    }
    if (left > 0) table += fmt::format("  and {} more\n", left);
    return table;
}

std::string memory_lines(const Profile& profile) {
    const MemoryProfile& memory = profile.memory;
    if (memory.curve.empty()) return "";
    std::string kinds;
    for (const MemoryKind kind : kMemoryKinds)
        if (const std::int64_t bytes = memory.kinds[static_cast<std::size_t>(kind)]; bytes > 0)
            kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", name_of(kind), size_text(bytes));
    std::string lines =
        fmt::format("\n  memory: {} held, also by what is not used in a step; a step uses {}\n",
                    size_text(memory.held), kinds);
    lines += fmt::format("  most in use: {}, at {}{}", size_text(memory.peak_bytes()), memory.peak_operation,
                         memory.peak_layer.empty() ? "" : " of " + memory.peak_layer);
    for (std::size_t i = 0; i < std::min<std::size_t>(3, memory.largest.size()); ++i) {
        const ProfiledMemory& one = memory.largest[i];
        lines += fmt::format("{}{} {}{}", i == 0 ? "; " : ", ", name_of(one.kind), size_text(one.bytes),
                             one.layer.empty() ? "" : " of " + one.layer);
    }
    return lines + "\n";
}

std::string ranks_line(const Profile& profile) {
    if (profile.ranks.size() < 2) return "";
    std::string unknown;
    std::vector<std::size_t> known;
    for (std::size_t rank = 0; rank < profile.ranks.size(); ++rank)
        if (profile.ranks[rank].step > 0)
            known.push_back(rank);
        else
            unknown += fmt::format("{}{}", unknown.empty() ? "; there is no profile of rank " : ", ", rank);
    const auto part = [&](std::size_t rank) {
        return profile.ranks[rank].communication / profile.ranks[rank].step;
    };
    if (known.empty()) return "";
    const auto [least, most] = std::ranges::minmax(known, {}, part);
    std::string line = fmt::format("\n  ranks spend {} to {} of a step in communication",
                                   percent(part(least), 1), percent(part(most), 1));
    if (part(most) - part(least) > kStraggles) line += fmt::format(": the others wait for rank {}", least);
    return line + unknown + "\n";
}

}  // namespace

std::string no_advice(const Profile& profile) {
    return profile.untried.empty() ? "nothing that was tried is a tenth faster"
                                   : "not all was tried: " + profile.untried;
}

std::string short_time(double seconds) {
    if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
    if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
    return fmt::format("{:.3g} µs", seconds * 1e6);
}

std::string overhead_text(const Profile& profile) {
    return profile.overhead ? fmt::format("{:.2f} %", 100 * *profile.overhead)
                            : std::string("a part that is not known");
}

std::string profile_text(const Profile& profile) {
    std::string text = fmt::format("profile of steps {} to {}: {} a step", profile.steps.first,
                                   profile.steps.last, short_time(profile.seconds));
    if (profile.median_without > 0)
        text += fmt::format(" (median {}, and {} before)", short_time(profile.median),
                            short_time(profile.median_without));
    text += fmt::format("; the profile itself takes {}\n  {}\n", overhead_text(profile), parts_line(profile));
    if (profile.peaks)
        text += fmt::format("  peak of this device, measured: {:.1f} GFLOP/s, {:.1f} GB/s\n",
                            profile.peaks->flops / 1e9, profile.peaks->bytes / 1e9);
    text += operations_table(profile) + layers_table(profile) + memory_lines(profile) + ranks_line(profile);
    text += profile.advice.empty() ? "\n  advice: none; " + no_advice(profile) : std::string("\n  advice:");
    for (const Advice& advice : profile.advice) text += "\n  - " + advice.text;
    return text;
}

}  // namespace dp::trainer
