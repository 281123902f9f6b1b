// SPDX-License-Identifier: Apache-2.0
//
// Consistency checks before training (options, model, data): all ranks continue or all exit, and exactly one
// prints the reason. No rank exits before the line is printed, because the others are ended when one exits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/parallel/launch_context.hpp"
#include "trainer/parallel/world.hpp"

namespace dp::trainer {

// Prints one line on standard error, with the rank if there are several. Nothing for "": another rank does.
void print_error(std::string_view message);
// This process's rank in the current generation.
void set_rank(std::uint32_t rank);

// Whether all ranks found the same for `what` ("the data", say). If some failed, one of them prints its
// error, if possible rank 0. If they only differ, rank 0 prints who has what, and `remedy`. The returned
// error has been printed, unless this process is alone or ranks are missing. All call in the same order.
Result<void> agree_on(World& world, const std::string& what, const Result<std::string>& mine,
                      const std::string& remedy);

// Compares many things at once, by name. If some differ, names the first of them as above. Every rank calls
// with the same names.
Result<void> agree_on_each(World& world, const std::vector<std::pair<std::string, std::string>>& mine,
                           const std::string& remedy);

// The same for a rank whose options are wrong and that has not joined the world. Returns the error, without a
// message if it has been printed or another rank prints it.
Error refuse_together(const LaunchContext& here, const Error& why);

// What a rank's options lead to; the first thing that all ranks compare.
inline constexpr const char* kFirstCheck = "the model";

}  // namespace dp::trainer
