// SPDX-License-Identifier: Apache-2.0
//
// What ranks agree on before they continue. Built on the all-reduce, so it works with every communicator. For
// rare moments, not for each step. Every rank calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// An all-gather: rank 0's numbers, then rank 1's, … Every rank brings the same number of them.
Result<std::vector<std::int64_t>> gather_of_all_ranks(std::span<const std::int64_t> mine, Device& device,
                                                      Communicator& communicator);

// A barrier that all ranks pass or none: if one brings an error, all return its fault. Only the first rank
// that failed keeps its message, so that one line is printed.
Result<void> all_or_none(const Result<void>& mine, Device& device, Communicator& communicator);

// An all-reduce with max.
Result<double> largest_of_all_ranks(double number, Device& device, Communicator& communicator);

// Whether every rank brought the same number.
Result<bool> equal_on_all_ranks(std::uint64_t number, Device& device, Communicator& communicator);

}  // namespace dp::trainer
