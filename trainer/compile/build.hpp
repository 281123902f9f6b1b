// SPDX-License-Identifier: Apache-2.0
//
// Part of the cache's keys: entries of another build, whose code may compose other images, are not used.
#pragma once

#include <string>

namespace dp::trainer {

// "0.1.0, build 3f…": the version with the build id that the linker gave the running program, else with the
// program's size and date.
std::string build_of_this_program();

}  // namespace dp::trainer
