// SPDX-License-Identifier: Apache-2.0
//
// A wait for other ranks that does not sleep, or wakes now and then: MPI's, CUDA's for a GPU, libdp's. Its own calls change all the time; who has called it, and
// that one's variables, do not. A loop of such calls has other variables each time: its counter.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stacks/native.hpp"
#include "stacks/process.hpp"

namespace dp::stacks {

// Whether the process has a library with such a wait.
bool may_wait_busily(const Process& process);

// Who has called it, and what can be seen of that one's variables: on the stack, in registers, behind these, and the first of the
// program's global ones (busy_wait.cpp has how many). A counter elsewhere is not: in an object whose address is on the stack alone, say.
struct BusyWait {
    uint64_t instruction = 0;  // where the caller goes on
    uint64_t stack_begin = 0, stack_end = 0;
    std::vector<uint64_t> registers;  // 0: not known
    uint64_t memory = 0;              // a hash
};

// nullopt: that is none, or it is not known who has called it.
std::optional<BusyWait> busy_wait_of(const Process& process, const std::vector<NativeFrame>& frames);

// Whether the two looks may have seen one and the same wait.
bool may_be_the_same(const BusyWait& one, const BusyWait& other);

// What of it can be seen while the process runs. False also if it cannot be read.
bool may_still_be_in(const Process& process, const BusyWait& wait);

}  // namespace dp::stacks
