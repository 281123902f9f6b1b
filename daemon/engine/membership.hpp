// SPDX-License-Identifier: Apache-2.0
//
// Who belongs to the step and what became of them: nodes and ranks by state, and the words for it. Pure; the
// broker owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dp.pb.h"

namespace dp {

// The words for a wait status: "was killed by signal 9 (SIGKILL)", "exited with code 3".
std::string describe_status(int wait_status);

class Membership {
 public:
    enum class RankState { unknown, started, hello, goodbye, vanished, exited };

    struct Rank {
        RankState state = RankState::unknown;
        bool said_hello = false;
        bool said_goodbye = false;
        int pid = 0;
        int wait_status = 0;
        std::optional<uint32_t> node;
        uint32_t local_rank = 0;
    };
    struct Node {
        std::string host;
        std::string address;
        std::vector<uint32_t> ranks;
        bool joined = false;
        bool left = false;
        bool lost = false;
    };

    // `hosts` are the step's nodes by node rank; shorter or empty where the launcher could not tell.
    Membership(uint32_t world_size, uint32_t nodes, std::span<const std::string> hosts);

    // nullopt: accepted; else why not.
    std::optional<std::string> join(const wire::Join& join);
    void note(const wire::RankEvent& event);
    void leave(uint32_t node) { nodes_[node].left = true; }
    void lose(uint32_t node) { nodes_[node].lost = true; }

    const std::vector<Node>& nodes() const { return nodes_; }
    const std::vector<Rank>& ranks() const { return ranks_; }
    bool all_joined() const { return joined_ == nodes_.size(); }
    bool all_left() const;
    bool all_exited() const;
    size_t hellos() const { return hellos_; }
    // Ranks that never said hello and have not ended, ascending.
    std::vector<uint32_t> without_hello() const;
    std::vector<uint32_t> nodes_not_joined() const;

    // "rank 5 on node02 (started as pid 4711, no hello yet)": ranks of one node and state together.
    std::string describe(std::span<const uint32_t> ranks) const;
    std::string host_of(uint32_t rank) const;

    // The table of --dp-verbose and --dp-dry-run, a line a rank under a line of titles.
    std::string table() const;

 private:
    std::vector<Node> nodes_;
    std::vector<Rank> ranks_;
    size_t joined_ = 0;
    size_t hellos_ = 0;

    std::string state_of(uint32_t rank) const;
};

}  // namespace dp
