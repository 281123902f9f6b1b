// SPDX-License-Identifier: Apache-2.0
//
// Standard input, output and error as a process may find them: closed, or on a disk that is full. main.cpp
// calls it first and last; what prints while a model trains does it by print_if_possible().
#ifndef TRAINER_BASE_STANDARD_STREAMS_HPP
#define TRAINER_BASE_STANDARD_STREAMS_HPP

#include <cstdio>
#include <exception>
#include <string_view>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// Puts /dev/null where one is closed ("trainer >&-"): else the next file that is opened takes its number, and
// what is printed lands in a checkpoint or in --metrics.
void hold_standard_streams();

// Whether all that was printed has arrived.
Result<void> all_is_printed();

// fmt's own throws where a disk is full, and a training is worth more than its lines. Of standard output
// all_is_printed() tells in the end.
void print_if_possible(std::FILE* stream, std::string_view text);

// What a library has thrown; fmt does where standard output takes no more.
Error error_of(const std::exception& thrown);

}  // namespace dp::trainer

#endif
