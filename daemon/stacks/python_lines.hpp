// SPDX-License-Identifier: Apache-2.0
//
// From where a Python function is to its line, by the table in its code object. Pure. The tables are told of in
// CPython's Objects/lnotab_notes.txt (3.9, 3.10) and Objects/locations.md (from 3.11 on).
#pragma once

#include <cstdint>
#include <string_view>

namespace dp::stacks {

enum class LineTable { increments, ranges, locations };  // of 3.9; of 3.10; from 3.11 on

// The line of the instruction `at` bytes into the function's bytecode; 0 if it has none.
uint32_t line_of(LineTable kind, std::string_view table, uint32_t first_line, int64_t at);

}  // namespace dp::stacks
