// SPDX-License-Identifier: Apache-2.0
//
// The memory that a rank's device has left before anything is allocated, and the message if that is not
// enough. run.cpp and compile.cpp refuse by it; estimate.hpp says what is needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/memory/estimate.hpp"
#include "trainer/parallel/launch_context.hpp"

namespace dp::trainer {

// Bytes that this rank's device can still give: its share of what the machine, its cgroup and
// --memory-limit leave.
std::int64_t available_here(Device& device, const LaunchContext& here);

// The minimum over all ranks, so that every rank decides the same. Every rank calls.
Result<std::int64_t> available_to_every_rank(Device& device, Communicator& communicator,
                                             const LaunchContext& here);

// What `trainer compile` measured for this rank (nothing: it did not), made equal on all ranks: the maximum,
// and nothing if a rank has nothing. Every rank calls.
Result<std::optional<std::int64_t>> measured_by_every_rank(std::optional<std::int64_t> peak, Device& device,
                                                           Communicator& communicator);

// The same model with --recompute, for the advice; null if that makes no difference.
std::unique_ptr<Model> recomputing_model(const ModelInfo& info, const ModelShape& shape);

// Adds advice to the error of a device that is out of memory, as far as it got.
Error with_advice(Error error, Device& device, const MemoryCase& memory_case);

}  // namespace dp::trainer
