// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/consistency.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/host_name.hpp"
#include "trainer/base/files.hpp"
#include "trainer/base/standard_streams.hpp"

namespace dp::trainer {
namespace {

// DP_RANK is that of the first generation.
std::optional<std::uint32_t> rank_now;

// "rank 3 on node2: " for a rank of a world, so that a line tells who wrote it.
std::string who() {
    const char* first = std::getenv("DP_RANK");
    if (first == nullptr) return {};
    return fmt::format("rank {} on {}: ", rank_now ? std::to_string(*rank_now) : first, host_name());
}

bool is_rank_0(const World& world) {
    return world.facts()->rank == 0;
}

// Like agree_on(), after rank 0 has reported its own problem.
Result<void> compare(World& world, const std::string& what, const Result<std::string>& mine,
                     const std::string& remedy) {
    // Before the barrier, so that afterwards all know whether a rank has something to report.
    if (!mine) world.claim_reporter();
    const auto same = world.agree(what, mine ? *mine : mine.error().message, remedy);
    if (same && mine) return {};
    if (!same && same.error().fault == Fault::world) {
        if (mine) return same;
        world.resign_as_reporter();
        return is_rank_0(world) ? same : tl::unexpected(mine.error());
    }

    const auto reporter = world.reporter();
    if (mine && !reporter && is_rank_0(world)) print_error(same.error().message);
    if (!mine && !is_rank_0(world) && reporter == world.facts()->rank) print_error(mine.error().message);
    world.leave_together();
    return fail(mine ? same.error().fault : mine.error().fault, "");
}

}  // namespace

void set_rank(std::uint32_t rank) {
    rank_now = rank;
}

void print_error(std::string_view message) {
    if (!message.empty()) print_if_possible(stderr, fmt::format("trainer: {}{}\n", who(), message));
}

Result<void> agree_on(World& world, const std::string& what, const Result<std::string>& mine,
                      const std::string& remedy) {
    if (world.facts() == nullptr)  // alone
        return mine ? Result<void>() : tl::unexpected(mine.error());
    if (!mine && is_rank_0(world)) print_error(mine.error().message);
    return compare(world, what, mine, remedy);
}

Result<void> agree_on_each(World& world, const std::vector<std::pair<std::string, std::string>>& mine,
                           const std::string& remedy) {
    if (world.facts() == nullptr) return {};
    std::string all;
    for (const auto& [what, found] : mine) all += fmt::format("{}={}\n", what, found);
    // As a rule they are alike, and this is all.
    auto same = world.agree("all options", sha256(all), remedy);
    if (same || same.error().fault == Fault::world) return same;
    for (const auto& [what, found] : mine) DP_TRY(agree_on(world, what, found, remedy));
    return same;
}

Error refuse_together(const LaunchContext& here, const Error& why) {
    if (!here.in_step) return {why.fault, is_primary_process(here) ? why.message : ""};
    // At once: a rank with other options may never reach the barrier.
    if (is_primary_process(here)) print_error(why.message);
    const Error unsaid = {why.fault, is_primary_process(here) ? "" : why.message};
    auto world = World::join();
    if (!world) return unsaid;
    const auto found = compare(*world, kFirstCheck, tl::unexpected(why), "give all ranks the same");
    return found.error().message.empty() ? Error{why.fault, ""} : unsaid;
}

}  // namespace dp::trainer
