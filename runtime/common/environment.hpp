// SPDX-License-Identifier: Apache-2.0
//
// The environment as a function, so that code that reads it can be tested with another one.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace dp {

using GetVariable = std::function<std::optional<std::string>(const char*)>;

// A variable for a task, and which value wins if the environment has it already.
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

// This process's environment.
inline std::optional<std::string> get_environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace dp
