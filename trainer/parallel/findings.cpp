// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/findings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "trainer/standard_streams.hpp"

namespace dp::trainer {
namespace {

// "rank 3 on node2: " for a rank of a world, so that one line tells who it was.
std::string who() {
    const char* rank = std::getenv("DP_RANK");
    if (rank == nullptr) return {};
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    return fmt::format("rank {} on {}: ", rank, host.data());
}

// Returns the error as one that nobody has to say any more.
Error said(Error error, bool by_this_rank) {
    if (by_this_rank) complain(error.message);
    error.message.clear();
    return error;
}

}  // namespace

void complain(std::string_view message) {
    if (!message.empty()) print_if_possible(stderr, fmt::format("trainer: {}{}\n", who(), message));
}

Result<void> found_by_all(World& world, const std::string& what, const Result<std::string>& mine,
                          const std::string& remedy) {
    if (world.facts() == nullptr)  // alone
        return mine ? Result<void>() : tl::make_unexpected(mine.error());

    // Before they compare, so that afterwards all know whether one of them has something to say.
    const bool has_the_word = !mine && world.take_the_word();
    const auto same = world.agree(what, mine ? *mine : mine.error().message, remedy);
    if (same && mine) return {};
    if (!same && same.error().fault == Fault::world)  // ranks are missing; each says what it knows
        return tl::make_unexpected(said(mine ? same.error() : mine.error(), true));

    const bool is_rank_0 = world.facts()->rank == 0;
    const bool is_wrong_for_some = !same && world.somebody_has_the_word();
    Error error = mine ? same.error() : mine.error();
    error = said(std::move(error), is_wrong_for_some ? has_the_word : is_rank_0);
    world.leave_together(has_the_word);
    return tl::make_unexpected(error);
}

Error refused_by_all(const Surroundings& here, const Error& why) {
    if (here.in_step) {
        if (auto world = World::join()) {
            (void)found_by_all(*world, kFirstFinding, tl::make_unexpected(why), "give all ranks the same");
            return {why.fault, ""};
        }
    }
    return {why.fault, speaks_for_all(here) ? why.message : ""};
}

}  // namespace dp::trainer
