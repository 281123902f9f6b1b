// SPDX-License-Identifier: Apache-2.0
#include "doctor/comparison.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "common/hostlist.hpp"

namespace dp::doctor {
namespace {

struct Rule {
    const char* fact;
    Level level;
    const char* why;
    const char* remedy;
};

constexpr Rule kRules[] = {
    {"slurm-dp", Level::warning,
     "nodes of different versions work or end within --dp-timeout, and the newer one's options do not hold "
     "everywhere",
     "the same packages on all nodes"},
    {"MTU", Level::fault, "small messages get through and large ones do not: a connection stands, and hangs",
     "ip link set INTERFACE mtu N, the same on all nodes"},
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
    {"CPUs", Level::warning, "the rank with the fewest CPUs makes the others wait in every step",
     "--constraint, or --exclusive"},
    {"kernel", Level::warning, "failures and speed depend on the node",
     "the same kernel on all nodes, when they are next rebooted"},
};

std::string who_has(const std::vector<std::string>& hosts, const std::string& value) {
    return compress_hostlist(hosts) + (hosts.size() == 1 ? " has " : " have ") + value;
}

}  // namespace

Findings compare_nodes(const std::vector<NodeFacts>& nodes, const std::vector<std::string>& hosts) {
    Findings found;
    for (const Rule& rule : kRules) {
        std::map<std::string, std::vector<std::string>> by_value;
        bool is_known = false;
        for (size_t i = 0; i < nodes.size(); ++i) {
            const auto fact = nodes[i].find(rule.fact);
            is_known |= fact != nodes[i].end();
            by_value[fact == nodes[i].end() ? "none" : fact->second].push_back(hosts[i]);
        }
        if (!is_known) continue;
        const auto usual = std::ranges::max_element(
            by_value, {}, [](const auto& value_and_hosts) { return value_and_hosts.second.size(); });
        if (by_value.size() == 1) {
            found.push_back(ok(rule.fact, usual->first));
            continue;
        }
        std::vector<std::string> differ;
        for (const auto& [value, those] : by_value)
            if (value != usual->first) differ.push_back(who_has(those, value));
        found.push_back(
            {rule.fact, rule.level,
             fmt::format("{}; {} {} {}", join(differ, "; "), plural(usual->second.size(), "other"),
                         usual->second.size() == 1 ? "has" : "have", usual->first),
             rule.why, rule.remedy});
    }
    return found;
}

}  // namespace dp::doctor
