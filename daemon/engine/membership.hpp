// SPDX-License-Identifier: Apache-2.0
//
// The nodes and ranks of the step by state, and the texts about them. Pure; the broker owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "engine/next_world.hpp"
#include "engine/time.hpp"

namespace dp {

// A rank's tiles, in bytes of text; the rest is cut.
inline constexpr size_t kMaxTilesText = 256;

class Membership {
 public:
    using State = wire::StepStatus;  // NOT_STARTED to EXITED
    struct Rank {
        wire::StepStatus::Rank told;  // as dpctl status shows it
        bool said_hello = false;
        bool said_goodbye = false;
        std::optional<uint32_t> node;
        uint32_t local_rank = 0;
        bool has_exited() const { return told.state() == State::EXITED; }
    };
    struct Node {
        std::string host;
        std::string address;
        uint16_t port = 0;               // where it can be the next broker; 0: it cannot
        uint32_t tasks = 0;              // that can have ranks; of a node that is not fit none
        std::vector<uint32_t> ranks;     // by local rank; of a spare none
        std::vector<std::string> tiles;  // for the table, by local rank; or none
        bool joined = false;
        bool left = false;
        bool lost = false;
        Time clock{};        // its own, when it last told
        Time clock_ahead{};  // of its clock, before the broker's
        bool is_here() const { return joined && !left && !lost; }
        bool is_spare() const { return is_here() && tasks > 0 && ranks.empty(); }
    };

    // `hosts`: by node rank; shorter or empty if the launcher could not tell. `start`: the broker's.
    Membership(uint32_t world_size, uint32_t nodes, std::span<const std::string> hosts, Time start = Time(0));

    // nullopt: accepted; else why not.
    std::optional<std::string> join(const wire::Join& join, Time now);
    void set_clock(uint32_t node, int64_t clock_ms, Time now);
    void note(const wire::RankEvent& event);
    void hello(const wire::Hellos::Rank& said);
    void note_id(uint32_t rank, Time now);
    void leave(uint32_t node);
    void lose(uint32_t node);
    // It stays in the step, and gets no ranks in the next generation or later.
    void set_unfit(uint32_t node);
    // For next_world.
    std::vector<NodeOfWorld> world() const;
    // All ranks begin another life, on these nodes: nothing has been heard of them.
    void begin_generation(const NextWorld& world);
    // What a node is told of its place in the generation.
    std::vector<wire::Place> places() const;
    // The hosts with ranks, and how many each has: for DP_HOSTFILE.
    void tell_hosts(wire::Plan& plan) const;
    // For a roll: the nodes that are here, and those of them that could follow the broker on this one, at most so many.
    std::vector<uint32_t> here() const;
    void name_successors(wire::Roll& roll, uint32_t broker, size_t most) const;
    // After an election: nodes that have not joined are lost. Those of the roll are given the ranks that no node has, the
    // last broker's first. Returns the nodes that got some.
    std::vector<uint32_t> presume_lost(const wire::Roll& roll);

    const std::vector<Node>& nodes() const { return nodes_; }
    const std::vector<Rank>& ranks() const { return ranks_; }
    bool all_joined() const { return joined_ == nodes_.size(); }
    bool all_left() const { return gone_ == nodes_.size(); }
    bool nobody_is_here() const { return gone_ == joined_; }
    size_t here_count() const { return joined_ - gone_; }
    bool all_exited() const { return exited_ == ranks_.size(); }
    size_t living() const { return ranks_.size() - exited_; }
    bool all_started() const { return started_ == ranks_.size(); }
    size_t hellos() const { return hellos_; }
    // The size of without_hello().
    size_t awaited() const { return awaited_; }
    // Ranks that have not said hello and have not ended, ascending; without those of lost nodes.
    std::vector<uint32_t> without_hello() const;
    std::vector<uint32_t> not_joined() const;
    // Ranks whose node has not joined, ascending.
    std::vector<uint32_t> without_node() const;

    // "gpu[03-04]: ranks 8-15 not started; gpu07: rank 29 started, no hello (pid 4711)": by state.
    std::string describe(std::span<const uint32_t> ranks) const;
    std::string host_of(uint32_t rank) const;
    // "gpu[03-04]"
    std::string hosts_of(std::span<const uint32_t> ranks) const;
    // "node gpu02 (ranks 8-15)", "2 nodes (gpu[02-03], ranks 8-23)"
    std::string name_nodes(std::span<const uint32_t> nodes) const;

    // For dpctl status and the metrics.
    void count(wire::StepStatus& status) const;
    void report(uint32_t node, wire::StepStatus::Node& told, bool with_ranks) const;

    // The table of --dp-verbose and --dp-dry-run: titles, and one line per rank.
    std::string table() const;
    uint32_t spares() const;

 private:
    std::vector<uint32_t> nodes_by_lowest_rank() const;

    std::vector<Node> nodes_;
    std::vector<Rank> ranks_;
    Time start_;
    size_t joined_ = 0;
    size_t gone_ = 0;  // nodes that left or are lost
    size_t hellos_ = 0;
    size_t exited_ = 0;
    size_t started_ = 0;
    size_t awaited_;

    void give_ranks(uint32_t node, std::span<const uint32_t> ranks);
    std::string state_of(uint32_t rank) const;
    bool is_lost(uint32_t rank) const;
    int64_t since_start(const Rank& rank, int64_t at_ms) const;
};

}  // namespace dp
