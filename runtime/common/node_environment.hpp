// SPDX-License-Identifier: Apache-2.0
//
// The part of the tasks' environment that is made once for a node, in the environment from which its tasks
// inherit: what is the same for all of them and needs no plan, and for the rest blanks, which each task fills
// in. A step of many tasks a node would otherwise work out some 50 variables in each of them. Used by the
// plugin.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/environment.hpp"
#include "common/environment_list.hpp"
#include "common/plan_file.hpp"
#include "common/task_environment.hpp"
#include "common/task_variable.hpp"

namespace dp {

// What the node's tasks are told of their tiles, by local rank; none without tiles. Not owned.
struct TilesOfTasks {
    std::vector<std::span<const TaskVariable>> variables = {};
    bool settled = true;  // a task will be told just that; else perhaps of other tiles
};

// `any` may be any task of the node, whatever its `cpus` and `tiles`; `get` reads the node's environment.
// Variables that Slurm, too, sets for each task are left to the tasks.
class NodeEnvironment;
NodeEnvironment node_environment(const TaskFacts& any, const TilesOfTasks& tiles, const GetVariable& get);

// `inherited` below reads what a task has inherited. What another plugin has set since is not the node's;
// nor, for the names of the world and of its ranks, the user's.
class NodeEnvironment {
 public:
    // What to make in the node's environment.
    std::vector<EnvironmentChange> changes() const;

    // Once that is done and no other name will be taken out: remembers where they stand.
    void find_in(char** environment);

    // In a task: writes its words into the blanks, and yields what is left to change. nullopt where its
    // environment is not as the node left it, or there is something to warn of, or a word is too long: then
    // nothing is written, and the changes of task_environment are to be made (get, left_of), which always
    // comes out the same.
    std::optional<std::vector<EnvironmentChange>> fill(char** environment, const TaskFacts& facts,
                                                       const NodePlan& plan) const;

    // For task_environment in a task: what would be there without the node's changes.
    std::optional<std::string> get(const char* name, const GetVariable& inherited) const;

    // What is left to do there so that all of the task's changes are made.
    std::vector<EnvironmentChange> left_of(const std::vector<EnvironmentChange>& changes_of_task,
                                           const GetVariable& inherited) const;

    // What takes the blanks away again, for the epilogs, and all that is said of tiles: in a task it may be
    // other ones.
    std::vector<EnvironmentChange> without_blanks(char** environment) const;

 private:
    // A variable as it was found.
    struct Found {
        std::string text;  // NAME=VALUE
        size_t place = 0;
    };
    class Finder;
    struct Made {
        std::string name;
        std::optional<std::string> now, before;
        std::string pattern;  // of a blank: what it will hold, a control character for each word; else ""
        Found found;
    };
    std::vector<Made> made_;
    std::vector<Found> kept_;          // the user's, which a task's environment was made with
    std::vector<TaskVariable> tiles_;  // a hole of the patterns for a value, or the one that all tasks have
    bool has_patterns_ = false;        // of all that a task would change

    // made_.size() where there is none.
    size_t place_of(std::string_view name) const;
    friend NodeEnvironment node_environment(const TaskFacts& any, const TilesOfTasks& tiles,
                                            const GetVariable& get);
};

}  // namespace dp
