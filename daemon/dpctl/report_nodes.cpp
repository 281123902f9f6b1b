// SPDX-License-Identifier: Apache-2.0
#include "dpctl/report_nodes.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "engine/table.hpp"

namespace dp {
namespace {

constexpr size_t kMostSeen = 12;

// "all 8 ranks", "the 3 of 8 ranks of which it is known"
std::string ranks_that_told(size_t told, size_t world_size) {
    const std::string count =
        told == 1 ? "the only" : fmt::format("{} {}", told < world_size ? "the" : "all", told);
    return told < world_size ? fmt::format("{}{} of {} ranks of which it is known", count,
                                           told == 1 ? " one" : "", world_size)
                             : count + (told == 1 ? " rank" : " ranks");
}

}  // namespace

std::string preflight_text(const RecordedRun& run) {
    std::vector<std::vector<std::string>> lines;
    for (const NodeRecord& node : run.nodes) {
        if (!node.preflight) continue;
        std::vector<std::string> seen = node.preflight->findings;
        for (const auto& one : node.preflight->measures)
            seen.push_back(fmt::format("{} {:.3g} {}", one.name, one.value, one.unit));
        if (seen.size() > kMostSeen) {
            seen.resize(kMostSeen);
            seen.emplace_back("...");
        }
        lines.push_back({node.host, in_words(node.preflight->verdict),
                         duration_in_words(node.preflight->seconds), join(seen, "; ")});
    }
    if (lines.empty()) return "";
    const size_t more = lines.size() - std::min(lines.size(), kMostRows);
    lines.resize(lines.size() - more);
    return "\n  preflight\n" + aligned(lines, 4, {false, false, true}) +
           (more > 0 ? "    and " + plural(more, "node") + " more\n" : "");
}

std::string gpus_text(const ReportedRun& one) {
    struct Row {
        const std::string* host;
        const GpuSummary* gpu;
    };
    std::vector<Row> rows;
    for (size_t i = 0; i < one.run.nodes.size(); ++i)
        for (const GpuSummary& gpu : one.timeline.nodes[i].gpus)
            rows.push_back({&one.run.nodes[i].host, &gpu});
    if (rows.empty()) return "";
    const size_t all = rows.size();
    const auto oddness = [](const Row& row) {
        constexpr double kUnknown = std::numeric_limits<double>::infinity();
        return std::pair(-row.gpu->slowed_seconds, row.gpu->of(GpuValue::clock).mean().value_or(kUnknown));
    };
    std::ranges::stable_sort(rows, {}, oddness);
    rows.resize(std::min(all, kMostRows));
    const auto figure = [](const std::optional<double>& value, const char* unit) {
        return value ? fmt::format("{:.0f} {}", *value, unit) : "-";
    };
    const auto extreme = [&](const GpuSummary::Course& course, int32_t value, const char* unit) {
        return figure(course.mean() ? std::optional(static_cast<double>(value)) : std::nullopt, unit);
    };
    std::vector<std::vector<std::string>> lines = {{"host", "tile", "busy", "memory, at most", "power",
                                                    "at most", "temperature, at most", "clock", "at least",
                                                    "slowed for"}};
    for (const auto& [host, gpu] : rows) {
        const auto &memory = gpu->of(GpuValue::memory), &power = gpu->of(GpuValue::power),
                   &temperature = gpu->of(GpuValue::temperature), &clock = gpu->of(GpuValue::clock);
        lines.push_back({*host, std::to_string(gpu->tile), figure(gpu->of(GpuValue::busy).mean(), "%"),
                         extreme(memory, memory.highest, "MiB") + fmt::format(" of {}", gpu->memory_mib),
                         figure(power.mean(), "W"), extreme(power, power.highest, "W"),
                         extreme(temperature, temperature.highest, "\u00b0C"), figure(clock.mean(), "MHz"),
                         extreme(clock, clock.lowest, "MHz"),
                         gpu->slowed_seconds > 0 ? duration_in_words(gpu->slowed_seconds) + ": " +
                                                       slowed_in_words(gpu->slowed_reasons)
                                                 : "-"});
    }
    return "\n  GPUs" +
           (all > kMostRows ? fmt::format(", the {} of {} that were slowed longest, or had the lowest clock",
                                          kMostRows, all)
                            : "") +
           "\n" + aligned(lines, 4, {false, true, true, true, true, true, true, true, true, false});
}

std::string transports_text(const RecordedRun& run) {
    struct Over {
        size_t pairs = 0, channels = 0;
        const RecordedTransports::Pair* first = nullptr;
    };
    std::map<std::string, Over> kinds;
    for (const auto& pair : run.transports.pairs) {
        Over& kind = kinds[pair.via];
        if (kind.pairs++ == 0) kind.first = &pair;
        kind.channels += pair.channels;
    }
    std::vector<std::vector<std::string>> lines;
    for (const auto& [via, kind] : kinds)
        lines.push_back({via, plural(kind.pairs, "pair") + " of ranks", plural(kind.channels, "channel"),
                         fmt::format("rank {} to {}{}", kind.first->from, kind.first->to,
                                     kind.pairs > 1 ? ", ..." : "")});
    return lines.empty() ? "" : "\n  NCCL's transports\n" + aligned(lines, 4);
}

// All of them are in --json and --html.
std::string environment_text(const RecordedRun& run) {
    const auto& [common, ranks] = run.environment;
    if (ranks.empty()) return "";
    std::string out = fmt::format(
        "\n  environment: of what slurm-dp has set, {} equal in {}\n",
        common.size() == 1 ? "1 variable is" : fmt::format("{} variables are", common.size()),
        ranks_that_told(ranks.size(), run.generations.empty() ? 0 : run.generations.back().world_size));
    for (const char* name :
         {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME"})
        if (const auto found = common.find(name); found != common.end())
            out += "    " + found->first + "=" + found->second + "\n";
    return out;
}

}  // namespace dp
