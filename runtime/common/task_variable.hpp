// SPDX-License-Identifier: Apache-2.0
//
// A variable for a task, and whose word counts where the environment has it already.
#pragma once

#include <string>

namespace dp {

struct TaskVariable {
    enum class Whose {
        task,   // each task's own: ours, whatever stood there; a warning where the user had set it
        slurm,  // the same, but Slurm sets it as well, so that what stood there says nothing of the user
        job,    // the user's is kept
        ours    // a name that nobody else has (kNamesOfTiles): whatever stood there, without a word
    };
    std::string name;
    std::string value;
    Whose whose = Whose::task;

    bool operator==(const TaskVariable&) const = default;
};

}  // namespace dp
