// SPDX-License-Identifier: Apache-2.0
#include "record/new_scalars.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace dp {
namespace {

constexpr uint32_t kFewRanks = 64;  // ranks of a world
constexpr uint32_t kRarely = 10;
constexpr uint32_t kOften = 300;  // samples of a small world

}  // namespace

void NewScalars::begin_generation(uint32_t world_size) {
    is_large_ = world_size > kFewRanks;
    for (auto& [connection, process] : seen_)
        for (Seen& one : process) one.name.clear();
}

bool NewScalars::has_new(std::span<const Rank> ranks) const {
    record::Sample sample;
    NewScalars(*this).add_to(sample, ranks, true);
    return sample.scalars_size() > 0;
}

void NewScalars::add_to(record::Sample& sample, std::span<const Rank> ranks, bool is_last) {
    std::vector<std::pair<const Rank*, LoggedScalar>> all;
    std::map<std::string, uint32_t> lowest;  // rank, by name
    for (const Rank& rank : ranks) {
        if (rank.page == nullptr) continue;
        for (LoggedScalar& one : logged_scalars(*rank.page)) {
            const auto found = lowest.try_emplace(one.name, rank.rank).first;
            found->second = std::min(found->second, rank.rank);
            all.emplace_back(&rank, std::move(one));
        }
    }
    const uint32_t number = samples_++;
    const bool is_turn = (!is_large_ && number < kOften) || is_last || number % kRarely == 0 ||
                         std::ranges::any_of(ranks, [](const Rank& one) { return one.rank == 0; });
    std::map<uint64_t, OfProcess> seen;
    for (const Rank& rank : ranks) seen[rank.connection] = seen_[rank.connection];
    for (const auto& [rank, scalar] : all) {
        Seen& one = seen[rank->connection][scalar.place];
        if (scalar.logged == one.logged) continue;
        const bool is_finite = std::isfinite(scalar.value);
        const bool is_lowest = lowest[scalar.name] == rank->rank;
        if (is_lowest && !is_turn && is_finite == one.is_finite) continue;  // later
        const bool is_told = is_lowest || is_finite != one.is_finite;
        if (is_told && sample.scalars_size() == kMostScalarsInSample) continue;
        one.logged = scalar.logged;
        one.is_finite = is_finite;
        if (!is_told) continue;
        auto& told = *sample.add_scalars();
        told.set_task(rank->task);
        told.set_number(static_cast<uint32_t>(scalar.place));
        if (std::exchange(one.name, scalar.name) != scalar.name) told.set_name(scalar.name);
        told.set_step(scalar.step);
        told.set_value(scalar.value);
    }
    seen_ = std::move(seen);
}

}  // namespace dp
