// SPDX-License-Identifier: Apache-2.0
#include "findings/comparison.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "common/hostlist.hpp"

namespace dp::doctor {
namespace {

struct Rule {
    const char* fact;
    Level level;
    const char* why;
    const char* remedy;
    bool may_be_unknown = false;  // a node that does not have it is left out
};

constexpr Rule kRules[] = {
    {"slurm-dp", Level::warning,
     "nodes of different versions work or end within --dp-timeout, and the newer one's options do not hold "
     "everywhere",
     "the same packages on all nodes"},
    {"MTU", Level::fault, "small messages get through and large ones do not: a connection stands, and hangs",
     "ip link set INTERFACE mtu N, the same on all nodes", true},
    {"driver", Level::warning,
     "CUDA's features are those of the oldest driver, and failures depend on the node",
     "the same driver on all nodes"},
    {"GPUs", Level::warning, "the slowest GPU sets the pace of all, and a rank may find none",
     "ask for one kind: --constraint, or --gres with a type"},
    {"NCCL", Level::fault,
     "ranks with different versions of NCCL do not meet: \"mismatched version\", or a hang",
     "the same module, container or LD_LIBRARY_PATH on all nodes"},
    {"PyTorch", Level::fault, "ranks compute with different code, and their messages may not fit together",
     "the same environment on all nodes"},
    {"CPU model", Level::warning, "the slowest CPUs set the pace of all", "--constraint", true},
    {"CPUs", Level::warning, "the rank with the fewest CPUs makes the others wait in every step",
     "--constraint, or --exclusive"},
    {"kernel", Level::warning, "failures and speed depend on the node",
     "the same kernel on all nodes, when they are next rebooted"},
};

struct Measured {
    const char* name;
    const char* unit;  // of 1e9
    const char* why;
    const char* remedy;
};

constexpr Measured kMeasures[] = {
    {"memory", "GB/s", "a DIMM is missing or has failed, or another job uses the memory",
     "dmidecode -t memory; edac-util -v; top"},
    {"GPU speed", "Gflop/s", "its slowest GPU is held back by heat, by a power limit or by another program",
     "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"},
    {"GPU memory", "GB/s", "a GPU's memory has failed in part, or another program uses it",
     "nvidia-smi -q -d ECC,ROW_REMAPPER,CLOCK"},
    {"cores", "Gflop/s", "its slowest core is held back by heat, by a power limit or by another program",
     "turbostat; top; dmesg | grep -i throttl"},
};
constexpr double kSlow = 0.5;
// Iglewicz and Hoaglin: beyond 3.5 robust deviations; 1.4826 makes a median absolute deviation one of a normal distribution.
constexpr double kDeviations = 3.5, kToSigma = 1.4826;

double median(std::vector<double> values) {
    std::ranges::sort(values);
    const size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

ComparedFact compare(const Measured& rule, const std::map<size_t, double>& by_node,
                     const std::vector<std::string>& hosts) {
    std::vector<double> all, distances;
    for (const auto& [node, value] : by_node) all.push_back(value);
    const double usual = all.size() == 2 ? std::max(all[0], all[1]) : median(all);
    for (const double value : all) distances.push_back(std::abs(value - usual));
    const double far = all.size() == 2 ? 0 : kDeviations * kToSigma * median(distances);
    std::vector<size_t> odd;
    std::vector<std::string> slow;
    double least = usual, most = 0;
    for (const auto& [node, value] : by_node) {
        if (value >= kSlow * usual || usual - value <= far) continue;
        odd.push_back(node);
        slow.push_back(hosts[node]);
        least = std::min(least, value);
        most = std::max(most, value);
    }
    if (odd.empty())
        return {ok(rule.name, fmt::format("{:.3g} to {:.3g} {}", *std::ranges::min_element(all) / 1e9,
                                          *std::ranges::max_element(all) / 1e9, rule.unit))};
    const std::string range = slow.size() == 1 ? fmt::format("{:.3g}", least / 1e9)
                                               : fmt::format("{:.3g} to {:.3g}", least / 1e9, most / 1e9);
    return {warning(rule.name,
                    compress_hostlist(slow) + fmt::format("{}{} {}, the usual is {:.3g}",
                                                          slow.size() == 1 ? " has " : " have ", range,
                                                          rule.unit, usual / 1e9),
                    rule.why, rule.remedy),
            odd};
}

using NodesByValue = std::map<std::string, std::vector<size_t>>;

std::string who_has(const std::vector<size_t>& nodes, const std::vector<std::string>& hosts,
                    const std::string& value) {
    std::vector<std::string> those;
    for (const size_t node : nodes) those.push_back(hosts[node]);
    return compress_hostlist(those) + (those.size() == 1 ? " has " : " have ") + value;
}

ComparedFact compare(const Rule& rule, const NodesByValue& by_value, const std::vector<std::string>& hosts) {
    const auto& [usual, most] = *std::ranges::max_element(
        by_value, {}, [](const auto& value_and_nodes) { return value_and_nodes.second.size(); });
    if (by_value.size() == 1) return {ok(rule.fact, usual)};
    std::vector<std::string> differ;
    std::vector<size_t> odd;
    for (const auto& [value, nodes] : by_value) {
        if (value == usual) continue;
        differ.push_back(who_has(nodes, hosts, value));
        odd.insert(odd.end(), nodes.begin(), nodes.end());
    }
    const std::string seen = join(differ, "; ") + "; " + plural(most.size(), "other") +
                             (most.size() == 1 ? " has " : " have ") + usual;
    if (most.size() <= odd.size()) odd.clear();
    std::ranges::sort(odd);
    return {{rule.fact, rule.level, seen, rule.why, rule.remedy}, odd};
}

}  // namespace

std::vector<ComparedFact> compare_nodes(const std::vector<NodeFacts>& nodes,
                                        const std::vector<std::string>& hosts) {
    std::vector<ComparedFact> found;
    for (const Rule& rule : kRules) {
        NodesByValue by_value;
        bool is_known = false;
        for (size_t node = 0; node < nodes.size(); ++node) {
            const auto fact = nodes[node].find(rule.fact);
            is_known |= fact != nodes[node].end();
            if (fact != nodes[node].end() || !rule.may_be_unknown)
                by_value[fact == nodes[node].end() ? "none" : fact->second].push_back(node);
        }
        if (is_known) found.push_back(compare(rule, by_value, hosts));
    }
    return found;
}

std::string_view giga_unit_of(std::string_view measure) {
    const auto* const found = std::ranges::find(kMeasures, measure, &Measured::name);
    return found == std::end(kMeasures) ? "" : found->unit;
}

std::vector<ComparedFact> compare_measures(const std::vector<NodeMeasures>& nodes,
                                           const std::vector<std::string>& hosts) {
    std::vector<ComparedFact> found;
    for (const Measured& rule : kMeasures) {
        std::map<size_t, double> by_node;
        for (size_t node = 0; node < nodes.size(); ++node)
            if (const auto one = nodes[node].find(rule.name);
                one != nodes[node].end() && std::isfinite(one->second) && one->second > 0)
                by_node[node] = one->second;
        if (by_node.size() > 1) found.push_back(compare(rule, by_node, hosts));
    }
    return found;
}

}  // namespace dp::doctor
