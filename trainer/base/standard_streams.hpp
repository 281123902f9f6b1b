// SPDX-License-Identifier: Apache-2.0
//
// Standard input, output and error in bad conditions: closed, or on a full disk. main.cpp calls it first and
// last; code that prints during training uses print_if_possible().
#pragma once

#include <cstdio>
#include <exception>
#include <string_view>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// Opens /dev/null for closed streams ("trainer >&-"): else output ends up in the next file that is opened.
void hold_standard_streams();

// From now on this process survives a reader that leaves ("trainer ... | head -1").
void outlive_readers();

// Checks that all output has been written, or that nobody reads it any more.
Result<void> all_is_printed();

// fmt's print throws if a disk is full; this goes on, and all_is_printed() reports it at the end.
void print_if_possible(std::FILE* stream, std::string_view text);

// The error for a library's exception; fmt throws if it cannot write to standard output.
Error error_of(const std::exception& thrown);

}  // namespace dp::trainer
