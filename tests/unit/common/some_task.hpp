// SPDX-License-Identifier: Apache-2.0
//
// A task and its plan, and environments as maps, for the tests of what a task sees.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/task_environment.hpp"

namespace dp {

using Variables = std::map<std::string, std::string>;

inline TaskFacts rank_5_of_8() {
    TaskFacts f;
    f.rank = 5;
    f.world_size = 8;
    f.local_rank = 1;
    f.local_world_size = 4;
    f.node_rank = 1;
    f.nodes = 2;
    f.generation = 3;
    f.settings = with_defaults({});
    f.settings.timeout_seconds = 60;
    f.cpus = 4;
    f.sizes = ModelParallel::of_world(8, 2, 2);
    f.socket = "@slurm-dp/1.0/abc";
    return f;
}

inline const NodePlan kPlan{"10.0.0.1", 29000, 29001, "10.0.0.2", ""};

inline GetVariable reading(const Variables& from) {
    return [&from](const char* name) -> std::optional<std::string> {
        auto found = from.find(name);
        return found == from.end() ? std::nullopt : std::optional<std::string>(found->second);
    };
}

inline void change(Variables& env, const std::vector<EnvironmentChange>& changes) {
    for (const auto& c : changes) {
        if (c.value)
            env[c.name] = *c.value;
        else
            env.erase(c.name);
    }
}

// The environment of a task that had `before`, and the warnings.
inline std::pair<Variables, std::vector<std::string>> task_with(Variables before,
                                                                const TaskFacts& facts = rank_5_of_8(),
                                                                const NodePlan& plan = kPlan) {
    const auto out = task_environment(facts, plan, reading(before));
    change(before, out.changes);
    return {before, out.warnings};
}

}  // namespace dp
