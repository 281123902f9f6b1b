// SPDX-License-Identifier: Apache-2.0
//
// A node's ranks: their connections, progress and tasks. A pure state machine; the node's engine owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
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
    void open(ConnectionId connection, uint32_t rank);
    void close(ConnectionId connection);
    std::optional<uint32_t> rank_of(ConnectionId connection) const;
    std::optional<ConnectionId> connection_of(uint32_t rank) const;
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
    void exit(uint32_t local_rank, int status, bool cancelled, Time now);
    bool has_exited(uint32_t local_rank) const { return local_rank < exited_.size() && exited_[local_rank]; }
    std::optional<Exit> take_exit(uint32_t rank);
    std::vector<uint32_t> overdue(Time now) const;
    bool has_exits() const { return !exits_.empty(); }
    void drop_exits() { exits_.clear(); }
    std::optional<Time> next_deadline() const;

    // Its training has taken this many steps.
    void progress(uint32_t rank, uint64_t step) { steps_[rank] = step; }
    // Whether /proc says that it is stopped. Returns a change: two equal looks in a row are believed.
    std::optional<bool> look(uint32_t local_rank, bool stopped);

 private:
    std::vector<uint32_t> ranks_;
    std::map<ConnectionId, uint32_t> rank_of_;
    std::map<uint32_t, ConnectionId> connection_;  // the other way round
    std::set<ConnectionId> refused_;
    std::set<uint32_t> said_hello_;
    std::vector<bool> exited_;        // by local rank
    std::vector<uint32_t> looks_;     // by local rank: how often in a row it was seen stopped
    std::map<uint32_t, Exit> exits_;  // not taken yet
    std::map<uint32_t, uint64_t> steps_;
};

}  // namespace dp
