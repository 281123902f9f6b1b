// SPDX-License-Identifier: Apache-2.0
//
// What each rank has found by itself before they train together: the words that it was started with, a model,
// data, or that something is wrong with them. All go on, or all end; then one line says why, and nobody has
// left before it is out: the first rank that ends has the others ended. main.cpp and run.cpp ask.
#ifndef TRAINER_PARALLEL_FINDINGS_HPP
#define TRAINER_PARALLEL_FINDINGS_HPP

#include <string>
#include <string_view>

#include "trainer/base/result.hpp"
#include "trainer/parallel/surroundings.hpp"
#include "trainer/parallel/world.hpp"

namespace dp::trainer {

// One line on standard error, with who says it where there are several. "": nothing, another says it.
void complain(std::string_view message);

// Whether all ranks have found the same of `what`, "the data", say. Where something is wrong, one of those
// for which it is says it, rank 0 if that is one of them; where they only differ, rank 0 says who has what,
// and `remedy`. The error that comes back has been said, but where this process is alone or ranks are
// missing. Every rank calls, in the same order.
Result<void> found_by_all(World& world, const std::string& what, const Result<std::string>& mine,
                          const std::string& remedy);

// The same for a rank that is not yet in the world and need not be: what is wrong with its words. Returns the
// error, which has no message where it has been said or another says it.
Error refused_by_all(const Surroundings& here, const Error& why);

// What the words that a rank was started with lead to, and the first that all compare.
inline constexpr const char* kFirstFinding = "the model";

}  // namespace dp::trainer

#endif
