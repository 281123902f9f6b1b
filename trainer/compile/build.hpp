// SPDX-License-Identifier: Apache-2.0
//
// Which build of the trainer this is: what one has cached is nothing to another, whose code may compose other
// images. The keys of the cache have it.
#ifndef TRAINER_COMPILE_BUILD_HPP
#define TRAINER_COMPILE_BUILD_HPP

#include <string>

namespace dp::trainer {

// "0.1.0, build 3f…": the version with the build id that the linker gave the running program, else with the
// program's length and date.
std::string build_of_this_program();

}  // namespace dp::trainer

#endif
