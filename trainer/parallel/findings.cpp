// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/findings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "trainer/base/files.hpp"
#include "trainer/base/standard_streams.hpp"

namespace dp::trainer {
namespace {

// "rank 3 on node2: " for a rank of a world, so that a line tells who wrote it.
std::string who() {
    const char* rank = std::getenv("DP_RANK");
    if (rank == nullptr) return {};
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    return fmt::format("rank {} on {}: ", rank, host.data());
}

bool is_rank_0(const World& world) {
    return world.facts()->rank == 0;
}

// Like found_by_all(), after rank 0 has reported its own problem.
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
    if (mine && !reporter && is_rank_0(world)) complain(same.error().message);
    if (!mine && !is_rank_0(world) && reporter == world.facts()->rank) complain(mine.error().message);
    world.leave_together();
    return fail(mine ? same.error().fault : mine.error().fault, "");
}

}  // namespace

void complain(std::string_view message) {
    if (!message.empty()) print_if_possible(stderr, fmt::format("trainer: {}{}\n", who(), message));
}

Result<void> found_by_all(World& world, const std::string& what, const Result<std::string>& mine,
                          const std::string& remedy) {
    if (world.facts() == nullptr)  // alone
        return mine ? Result<void>() : tl::unexpected(mine.error());
    if (!mine && is_rank_0(world)) complain(mine.error().message);
    return compare(world, what, mine, remedy);
}

Result<void> found_alike(World& world, const std::vector<std::pair<std::string, std::string>>& mine,
                         const std::string& remedy) {
    if (world.facts() == nullptr) return {};
    std::string all;
    for (const auto& [what, found] : mine) all += fmt::format("{}={}\n", what, found);
    // As a rule they are alike, and this is all.
    auto same = world.agree("all options", sha256(all), remedy);
    if (same || same.error().fault == Fault::world) return same;
    for (const auto& [what, found] : mine) DP_TRY(found_by_all(world, what, found, remedy));
    return same;
}

Error refused_by_all(const Surroundings& here, const Error& why) {
    if (!here.in_step) return {why.fault, speaks_for_all(here) ? why.message : ""};
    // At once: a rank with other options may never reach the barrier.
    if (speaks_for_all(here)) complain(why.message);
    const Error unsaid = {why.fault, speaks_for_all(here) ? "" : why.message};
    auto world = World::join();
    if (!world) return unsaid;
    const auto found = compare(*world, kFirstFinding, tl::unexpected(why), "give all ranks the same");
    return found.error().message.empty() ? Error{why.fault, ""} : unsaid;
}

}  // namespace dp::trainer
