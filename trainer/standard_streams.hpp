// SPDX-License-Identifier: Apache-2.0
//
// Standard input, output and error as a process may find them: closed, or on a disk that is full. main.cpp
// calls it first and last.
#ifndef TRAINER_STANDARD_STREAMS_HPP
#define TRAINER_STANDARD_STREAMS_HPP

#include "trainer/result.hpp"

namespace dp::trainer {

// Puts /dev/null where one is closed ("trainer >&-"): else the next file that is opened takes its number, and
// what is printed lands in a checkpoint or in --metrics.
void hold_standard_streams();

// Whether all that was printed has arrived.
Result<void> all_is_printed();

}  // namespace dp::trainer

#endif
