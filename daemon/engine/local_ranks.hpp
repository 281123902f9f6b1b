// SPDX-License-Identifier: Apache-2.0
//
// A node's ranks: their connections, progress and tasks. A pure state machine; the node's engine owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/time.hpp"

namespace dp {

using ConnectionId = uint64_t;

// How long a rank's exit waits for the end of its connection, which a child of the rank may hold open.
inline constexpr Time kExitGrace{200};

class LocalRanks {
 public:
    // World ranks by local rank.
    explicit LocalRanks(std::vector<uint32_t> ranks)
        : ranks_(std::move(ranks)), exited_(ranks_.size(), false), looks_(ranks_.size(), 0) {}

    // ---- connections ----
    // The rank has said hello on it.
    void open(ConnectionId connection, uint32_t rank, int32_t pid) {
        rank_of_[connection] = rank;
        pid_of_[connection] = pid;
        connection_[rank] = connection;
        said_hello_.insert(rank);
        steps_.erase(rank);  // an earlier program's
    }
    void close(ConnectionId connection) {
        refused_.erase(connection);
        auto found = rank_of_.find(connection);
        if (found == rank_of_.end()) return;
        connection_.erase(found->second);
        rank_of_.erase(found);
        pid_of_.erase(connection);
        enabled_rejoin_.erase(connection);
    }
    // Of its process, as that sees it.
    int32_t pid_of(ConnectionId connection) const { return pid_of_.at(connection); }
    // Its process can go on in the next generation, as long as this connection is open.
    void enable_rejoin(ConnectionId connection) { enabled_rejoin_.insert(connection); }
    std::set<uint32_t> that_can_rejoin() const {
        std::set<uint32_t> out;
        for (const ConnectionId connection : enabled_rejoin_) out.insert(rank_of_.at(connection));
        return out;
    }
    std::optional<uint32_t> rank_of(ConnectionId connection) const {
        auto found = rank_of_.find(connection);
        return found == rank_of_.end() ? std::nullopt : std::optional(found->second);
    }
    std::optional<ConnectionId> connection_of(uint32_t rank) const {
        auto found = connection_.find(rank);
        return found == connection_.end() ? std::nullopt : std::optional(found->second);
    }
    const std::map<ConnectionId, uint32_t>& connections() const { return rank_of_; }
    bool all_said_hello() const { return said_hello_.size() == ranks_.size(); }
    // Its hello was refused: it is ignored until it closes.
    void refuse(ConnectionId connection) { refused_.insert(connection); }
    bool is_refused(ConnectionId connection) const { return refused_.contains(connection); }

    // ---- tasks ----
    struct Exit {
        int status = 0;
        bool cancelled = false;
        std::optional<uint64_t> step;  // how far its training was
        Time deadline{};
    };
    // Only the first report counts; take_exit returns it once the connection is closed, or at the deadline.
    void exit(uint32_t local_rank, int status, bool cancelled, Time now) {
        if (exited_[local_rank]) return;
        exited_[local_rank] = true;
        exits_[ranks_[local_rank]] = {status, cancelled, std::nullopt, now + kExitGrace};
    }
    bool has_exited(uint32_t local_rank) const { return local_rank < exited_.size() && exited_[local_rank]; }
    std::optional<Exit> take_exit(uint32_t rank) {
        const auto found = exits_.extract(rank);
        if (!found) return std::nullopt;
        Exit exit = found.mapped();
        if (auto step = steps_.find(rank); step != steps_.end()) exit.step = step->second;
        return exit;
    }
    std::vector<uint32_t> overdue(Time now) const {
        std::vector<uint32_t> out;
        for (const auto& [rank, exit] : exits_)
            if (now >= exit.deadline) out.push_back(rank);
        return out;
    }
    bool all_exited() const { return std::find(exited_.begin(), exited_.end(), false) == exited_.end(); }
    bool has_exits() const { return !exits_.empty(); }
    void drop_exits() { exits_.clear(); }
    std::optional<Time> next_deadline() const {
        std::optional<Time> next;
        for (const auto& [rank, exit] : exits_) next = earlier(next, exit.deadline);
        return next;
    }

    // Its training has taken this many steps.
    void progress(uint32_t rank, uint64_t step) { steps_[rank] = step; }
    std::optional<uint64_t> step_of(uint32_t rank) const {
        const auto found = steps_.find(rank);
        return found == steps_.end() ? std::nullopt : std::optional(found->second);
    }
    std::optional<uint64_t> furthest_step() const {
        std::optional<uint64_t> furthest;
        for (const auto& [rank, step] : steps_) furthest = std::max(furthest.value_or(0), step);
        return furthest;
    }
    // Whether /proc says that it is stopped. Returns a change: two equal looks in a row are believed.
    // A single sighting may be a step that is being resumed, its daemon first.
    std::optional<bool> look(uint32_t local_rank, bool stopped) {
        constexpr uint32_t kEnough = 2;
        if (local_rank >= looks_.size() || exited_[local_rank]) return std::nullopt;
        uint32_t& looks = looks_[local_rank];
        const uint32_t before = std::exchange(looks, stopped ? std::min(looks + 1, kEnough) : 0);
        return (before == kEnough) == (looks == kEnough) ? std::nullopt : std::optional(stopped);
    }

 private:
    std::vector<uint32_t> ranks_;
    std::map<ConnectionId, uint32_t> rank_of_;
    std::map<uint32_t, ConnectionId> connection_;  // the other way round
    std::map<ConnectionId, int32_t> pid_of_;
    std::set<ConnectionId> enabled_rejoin_;
    std::set<ConnectionId> refused_;
    std::set<uint32_t> said_hello_;
    std::vector<bool> exited_;        // by local rank
    std::vector<uint32_t> looks_;     // by local rank: how often in a row it was seen stopped
    std::map<uint32_t, Exit> exits_;  // not taken yet
    std::map<uint32_t, uint64_t> steps_;
};

}  // namespace dp
