// SPDX-License-Identifier: Apache-2.0
#include "common/task_environment.hpp"

#include "common/text.hpp"

namespace dp {
namespace {

struct Variable {
    const char* name;
    const char* twin;  // the DP_ variable that holds the same, set beside it
    std::string value;
};

}  // namespace

TaskEnvironment task_environment(const TaskFacts& facts, const NodePlan& plan, const GetVariable& get) {
    auto n = [](uint32_t number) { return std::to_string(number); };
    const Variable shared[] = {
        {"MASTER_ADDR", "DP_MASTER_ADDR", plan.master_addr},
        {"MASTER_PORT", "DP_MASTER_PORT", n(plan.master_port)},
        {"WORLD_SIZE", "DP_WORLD_SIZE", n(facts.world_size)},
    };
    const Variable own[] = {
        {"RANK", "DP_RANK", n(facts.rank)},
        {"LOCAL_RANK", "DP_LOCAL_RANK", n(facts.local_rank)},
        {"LOCAL_WORLD_SIZE", "DP_LOCAL_WORLD_SIZE", n(facts.local_world_size)},
        {"NODE_RANK", "DP_NODE_RANK", n(facts.node_rank)},
        {"GROUP_RANK", "DP_NODE_RANK", n(facts.node_rank)},
        {"GROUP_WORLD_SIZE", "DP_NODES", n(facts.nodes)},
    };

    // What stands in the environment because the user wanted it.
    auto of_user = [&](const Variable& v) -> std::optional<std::string> {
        auto value = get(v.name);
        if (!value || value->empty()) return std::nullopt;  // empty counts as missing, as in PyTorch
        auto twin = get(v.twin);
        if (twin && *twin == *value) return std::nullopt;
        return value;
    };

    TaskEnvironment out;
    auto set = [&](const char* name, std::string value) { out.changes.push_back({name, std::move(value)}); };
    for (const auto& v : shared) {
        auto kept = of_user(v);
        if (!kept) set(v.name, v.value);
        if (kept && *kept != v.value)
            out.warnings.push_back(std::string(v.name) + "=" + printable(*kept, 80) +
                                   " was set before and is kept, though this step's is " + v.value +
                                   "; unset " + v.name + " to use it");
        set(v.twin, v.value);
    }
    std::string constant;
    for (const auto& v : own) {
        if (of_user(v) && facts.world_size > 1)
            constant +=
                (constant.empty() ? "" : ", ") + std::string(v.name) + "=" + printable(*get(v.name), 20);
        set(v.name, v.value);
        set(v.twin, v.value);
    }
    if (!constant.empty())
        out.warnings.push_back(constant +
                               " came from the job's environment, the same for every task; each task gets "
                               "its own instead");
    set("DP_GENERATION", n(facts.generation));
    set("DP_SOCKET", facts.socket);
    set("DP_NODE_ADDR", plan.node_addr);
    set("DP_TIMEOUT", n(facts.timeout_seconds));
    for (const char* name : kLauncherVariables) out.changes.push_back({name, std::nullopt});
    return out;
}

}  // namespace dp
