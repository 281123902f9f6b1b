// SPDX-License-Identifier: Apache-2.0
//
// The memory that a rank's device has left before anything is allocated; estimate.hpp says what is needed.
#pragma once

#include "trainer/base/communicator.hpp"
#include "trainer/memory/estimate.hpp"
#include "trainer/parallel/launch_context.hpp"

namespace dp::trainer {

// This rank's share, in bytes, of what the machine, its cgroup and --memory-limit leave.
std::int64_t available_here(Device& device, const LaunchContext& here);

// Over all ranks, so that every rank decides the same, in bytes.
struct CommonMemory {
    std::int64_t available;  // the minimum
    std::optional<std::int64_t>
        peak;  // the maximum of what `trainer compile` measured; nothing if a rank has nothing
};
// From this rank's own. Every rank calls.
Result<CommonMemory> common_memory(std::int64_t available, std::optional<std::int64_t> peak, Device& device,
                                   Communicator& communicator);

// Adds advice to the error of a device that is out of memory, as far as it got.
Error with_advice(Error error, Device& device, const MemoryCase& memory_case);

}  // namespace dp::trainer
