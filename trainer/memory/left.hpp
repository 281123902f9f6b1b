// SPDX-License-Identifier: Apache-2.0
//
// What a rank's device has left before anything is allocated, and what to say where that was not enough.
// run.cpp and compile.cpp refuse by it; estimate.hpp says what is needed.
#ifndef TRAINER_MEMORY_LEFT_HPP
#define TRAINER_MEMORY_LEFT_HPP

#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/memory/estimate.hpp"
#include "trainer/parallel/surroundings.hpp"

namespace dp::trainer {

// Bytes that a rank's device may still give: its part of what the machine, its group and --memory-limit
// leave.
std::int64_t available_here(Device& device, const Surroundings& here);

// The same number on every rank, so that all come to the same: that of the rank with the least. Every rank
// calls.
Result<std::int64_t> available_to_every_rank(Device& device, Communicator& communicator,
                                             const Surroundings& here);

// What `trainer compile` measured for this rank (nothing: it did not), made the same on every rank: the most
// of all, and nothing where a rank has nothing. Every rank calls.
Result<std::optional<std::int64_t>> measured_by_every_rank(std::optional<std::int64_t> peak, Device& device,
                                                           Communicator& communicator);

// The same model with --recompute, for the advice; null where that is no choice.
std::unique_ptr<Model> recomputing_model(const ModelInfo& info, const ModelShape& shape);

// What to do is a part of the line where a device is out of memory, as far as it got.
Error with_advice(Error error, Device& device, const MemoryCase& memory_case);

}  // namespace dp::trainer

#endif
