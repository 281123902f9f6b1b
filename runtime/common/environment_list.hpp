// SPDX-License-Identifier: Apache-2.0
//
// An environment as Slurm keeps it ("NAME=value" entries, then a null): fast to look up, changed in place.
//
// Adding a variable costs Slurm some 15 us: it allocates and clears 256 KiB for each (setenvf). So srun gives
// its nodes slots, which are variables without a meaning, and a node's plugin writes its own into them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dp {

struct EnvironmentChange {
    std::string name;
    std::optional<std::string> value;  // nullopt: unset
    bool operator==(const EnvironmentChange&) const = default;
};

// The slots that srun sets: enough of them, and large enough, for a node's variables, with or without tiles.
std::vector<EnvironmentChange> empty_slots(bool tiles);
inline constexpr std::string_view kSlot = "SLURM_DP_SLOT_";

// The names of an environment's unused slots; the environment may be null.
std::vector<std::string> slots_of(const char* const* environment);

// Overwrites the variable of that name if it is as long, without an index of all of them. False: nothing was written.
bool overwrite(char** environment, const EnvironmentChange& change);

class EnvironmentList {
 public:
    // Valid until somebody else changes the environment, which may be null.
    explicit EnvironmentList(char** environment);

    std::optional<std::string> operator()(const char* name) const;

    // Overwrites the variable of that name if it is as long, or uses a slot if there is no such variable.
    // False: no room, or the change is to unset it; nothing was written.
    bool write(const EnvironmentChange& change);

 private:
    std::unordered_map<std::string_view, char*> variables_;  // of each name the first: the whole text
    std::vector<char*> slots_;

    char* find(std::string_view name) const;  // null if there is none
};

}  // namespace dp
