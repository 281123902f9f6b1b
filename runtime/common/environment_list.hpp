// SPDX-License-Identifier: Apache-2.0
//
// An environment as the kernel and Slurm keep it, "NAME=value" each and then null: looked up fast, and
// changed in place where there is room.
//
// A variable that is set anew costs Slurm some 15 us: it allocates and clears 256 KiB for each (setenvf). So
// srun gives its nodes slots, variables that stand for nothing, and a node's plugin writes its own into them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dp {

struct EnvironmentChange {
    std::string name;
    std::optional<std::string> value;  // nullopt: unset
    bool operator==(const EnvironmentChange&) const = default;
};

// What srun sets: enough of them, and large enough, for a node's variables, with those of its tiles or
// without.
std::vector<EnvironmentChange> empty_slots(bool tiles);
inline constexpr std::string_view kSlot = "SLURM_DP_SLOT_";

// The names of those of an environment that nothing was written into; it may be null for none.
std::vector<std::string> slots_of(const char* const* environment);

class EnvironmentList {
 public:
    // Valid as long as nobody else changes it; may be null for none. What comes after the first 40,000
    // variables is not looked at.
    explicit EnvironmentList(char** environment);

    std::optional<std::string> operator()(const char* name) const;

    // Its place in the environment.
    std::optional<size_t> place(std::string_view name) const;

    // Over the variable of that name, where that is as long, or where there is none into a slot. False: there
    // is no room, or the change is to unset it; nothing was written.
    bool write(const EnvironmentChange& change);

 private:
    struct Entry {
        uint32_t hash;  // of the name
        uint32_t name_size;
        uint32_t place;
    };
    char** environment_;
    std::vector<Entry> entries_;    // of each name the first
    std::vector<uint16_t> places_;  // one more than an entry's number, from its hash on; 0: free
    std::vector<char*> slots_;

    // Where the entry of that name is in places_, or would be.
    size_t place_of(std::string_view name, uint32_t hash) const;
    // The whole text; null where there is none.
    char* find(std::string_view name) const;
};

}  // namespace dp
