// SPDX-License-Identifier: Apache-2.0
//
// A variable for a task, and which value wins if the environment has it already.
#pragma once

#include <string>

namespace dp {

struct TaskVariable {
    enum class Whose {
        task,   // each task's own: ours wins, with a warning if the user had set it
        slurm,  // the same, but Slurm sets it as well, so an existing value says nothing about the user
        job,    // the user's wins
        ours    // a name that only we use (kNamesOfTiles): ours wins, silently
    };
    std::string name;
    std::string value;
    Whose whose = Whose::task;

    bool operator==(const TaskVariable&) const = default;
};

}  // namespace dp
