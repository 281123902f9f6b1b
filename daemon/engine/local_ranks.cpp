// SPDX-License-Identifier: Apache-2.0
#include "engine/local_ranks.hpp"

#include <algorithm>
#include <utility>

namespace dp {

void LocalRanks::open(ConnectionId connection, uint32_t rank) {
    rank_of_[connection] = rank;
    connection_[rank] = connection;
    said_hello_.insert(rank);
    steps_.erase(rank);  // an earlier program's
}

void LocalRanks::close(ConnectionId connection) {
    refused_.erase(connection);
    auto found = rank_of_.find(connection);
    if (found == rank_of_.end()) return;
    connection_.erase(found->second);
    rank_of_.erase(found);
}

std::optional<uint32_t> LocalRanks::rank_of(ConnectionId connection) const {
    auto found = rank_of_.find(connection);
    return found == rank_of_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<ConnectionId> LocalRanks::connection_of(uint32_t rank) const {
    auto found = connection_.find(rank);
    return found == connection_.end() ? std::nullopt : std::optional(found->second);
}

void LocalRanks::exit(uint32_t local_rank, int status, bool cancelled, Time now) {
    if (exited_[local_rank]) return;
    exited_[local_rank] = true;
    exits_[ranks_[local_rank]] = {status, cancelled, std::nullopt, now + kExitGrace};
}

std::optional<LocalRanks::Exit> LocalRanks::take_exit(uint32_t rank) {
    const auto found = exits_.extract(rank);
    if (!found) return std::nullopt;
    Exit exit = found.mapped();
    if (auto step = steps_.find(rank); step != steps_.end()) exit.step = step->second;
    return exit;
}

std::vector<uint32_t> LocalRanks::overdue(Time now) const {
    std::vector<uint32_t> out;
    for (const auto& [rank, exit] : exits_)
        if (now >= exit.deadline) out.push_back(rank);
    return out;
}

std::optional<Time> LocalRanks::next_deadline() const {
    std::optional<Time> next;
    for (const auto& [rank, exit] : exits_) next = earlier(next, exit.deadline);
    return next;
}

// A single sighting may be a step that is being resumed, its daemon first.
std::optional<bool> LocalRanks::look(uint32_t local_rank, bool stopped) {
    constexpr uint32_t kEnough = 2;
    if (local_rank >= looks_.size() || exited_[local_rank]) return std::nullopt;
    uint32_t& looks = looks_[local_rank];
    const uint32_t before = std::exchange(looks, stopped ? std::min(looks + 1, kEnough) : 0);
    return (before == kEnough) == (looks == kEnough) ? std::nullopt : std::optional(stopped);
}

}  // namespace dp
