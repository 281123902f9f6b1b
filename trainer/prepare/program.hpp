// SPDX-License-Identifier: Apache-2.0
//
// Runs another program to its end: npm and tar, for fetch.cpp.
#pragma once

#include <string>
#include <vector>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// The program is looked for in PATH. An error, one line, where it is not there or fails; it has the last line
// that the program printed.
Result<void> run_program(const std::vector<std::string>& words);

}  // namespace dp::trainer
