// SPDX-License-Identifier: Apache-2.0
//
// What ranks do together before they go on: look at what each of them brought, and fail together. Written on
// top of the all-reduce, so that it works on every communicator. For rare moments, not for each step.
#ifndef TRAINER_PARALLEL_AGREEMENT_HPP
#define TRAINER_PARALLEL_AGREEMENT_HPP

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// The numbers of rank 0, then those of rank 1, … Every rank calls with as many numbers.
Result<std::vector<std::int64_t>> gather_of_all_ranks(std::span<const std::int64_t> mine, Device& device,
                                                      Communicator& communicator);

// A barrier that is passed by all ranks or by none: where one comes with an error, all leave with its fault.
// The first of those that failed keeps its message, so that one line is printed. Every rank calls.
Result<void> all_or_none(const Result<void>& mine, Device& device, Communicator& communicator);

// The largest number that a rank brought. Every rank calls.
Result<double> largest_of_all_ranks(double number, Device& device, Communicator& communicator);

// Whether every rank brought the same number. Every rank calls.
Result<bool> equal_on_all_ranks(std::uint64_t number, Device& device, Communicator& communicator);

}  // namespace dp::trainer

#endif
