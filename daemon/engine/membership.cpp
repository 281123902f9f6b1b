// SPDX-License-Identifier: Apache-2.0
#include "engine/membership.hpp"

#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/wait_status.hpp"
#include "tiles/shares.hpp"

namespace dp {
namespace {

wire::StepStatus::State wire_state(Membership::RankState state) {
    switch (state) {
        case Membership::RankState::unknown:
            return wire::StepStatus::NOT_STARTED;
        case Membership::RankState::started:
            return wire::StepStatus::STARTED;
        case Membership::RankState::hello:
            return wire::StepStatus::HELLO;
        case Membership::RankState::goodbye:
            return wire::StepStatus::GOODBYE;
        case Membership::RankState::vanished:
            return wire::StepStatus::VANISHED;
        case Membership::RankState::exited:
            return wire::StepStatus::EXITED;
    }
    return wire::StepStatus::NOT_STARTED;
}

}  // namespace

Membership::Membership(uint32_t world_size, uint32_t nodes, std::span<const std::string> hosts)
    : nodes_(nodes), ranks_(world_size), awaited_(world_size) {
    for (size_t i = 0; i < nodes_.size() && i < hosts.size(); ++i) nodes_[i].host = hosts[i];
}

std::optional<std::string> Membership::join(const wire::Join& join, Time now) {
    if (join.node_rank() >= nodes_.size())
        return "node rank " + std::to_string(join.node_rank()) + " of a step of " +
               plural(nodes_.size(), "node");
    Node& node = nodes_[join.node_rank()];
    if (node.joined) return "node rank " + std::to_string(join.node_rank()) + " has joined before";
    std::set<uint32_t> seen;
    for (uint32_t rank : join.ranks()) {
        if (rank >= ranks_.size())
            return "rank " + std::to_string(rank) + " of a world of " + std::to_string(ranks_.size());
        if (!seen.insert(rank).second) return "rank " + std::to_string(rank) + " twice";
        if (ranks_[rank].node) return "rank " + std::to_string(rank) + " is on " + host_of(rank) + " already";
    }
    node.joined = true;
    node.clock_ahead = clamped(join.clock_ms()) - now;
    node.host = printable(join.host(), 64);
    node.address = printable(join.address(), 64);
    node.ranks.assign(join.ranks().begin(), join.ranks().end());
    for (int i = 0; i < std::min(join.tiles_size(), join.ranks_size()); ++i)
        node.tiles.push_back(printable(join.tiles(i), kMaxTilesText));
    uint32_t local = 0;
    for (uint32_t rank : join.ranks()) {
        ranks_[rank].node = join.node_rank();
        ranks_[rank].local_rank = local++;
    }
    ++joined_;
    return std::nullopt;
}

void Membership::set_clock(uint32_t node, int64_t clock_ms, Time now) {
    if (node < nodes_.size() && nodes_[node].joined && clock_ms > 0)
        nodes_[node].clock_ahead = clamped(clock_ms) - now;
}

// Converts a node's time to the broker's clock.
Time Membership::by_broker(uint32_t rank, int64_t at_ms) const {
    return clamped(at_ms) - nodes_[*ranks_[rank].node].clock_ahead;
}

void Membership::note_id(uint32_t rank, Time now) {
    if (rank < ranks_.size() && !ranks_[rank].got_id) ranks_[rank].got_id = now;
}

void Membership::hello(const wire::Hellos::Rank& said) {
    Rank& rank = ranks_[said.rank()];
    // Once a task has ended, no late message can revive it.
    if (rank.state == RankState::exited) return;
    if (!rank.said_hello) {
        ++hellos_;
        --awaited_;
    }
    rank.said_hello = true;
    rank.said_goodbye = false;
    rank.state = RankState::hello;
    // The pid as the rank sees it, which differs in a container from its node's.
    if (rank.pid == 0) rank.pid = said.pid();
    if (!rank.greeted) rank.greeted = by_broker(said.rank(), said.at_ms());
}

void Membership::note(const wire::RankEvent& event) {
    if (event.rank() >= ranks_.size()) return;
    Rank& rank = ranks_[event.rank()];
    if (rank.state == RankState::exited) return;
    switch (event.event_case()) {
        case wire::RankEvent::kStarted:
            rank.pid = event.started();
            if (rank.state == RankState::unknown) rank.state = RankState::started;
            rank.started = by_broker(event.rank(), event.at_ms());
            break;
        case wire::RankEvent::kStopped:
            rank.stopped = event.stopped();
            break;
        case wire::RankEvent::kReady:
            if (!rank.ready) rank.ready = by_broker(event.rank(), event.at_ms());
            break;
        case wire::RankEvent::kGoodbye:
            rank.said_goodbye = true;
            rank.state = RankState::goodbye;
            break;
        case wire::RankEvent::kVanished:
            rank.state = RankState::vanished;
            break;
        case wire::RankEvent::kExited:
            rank.wait_status = event.exited();
            rank.state = RankState::exited;
            ++exited_;
            if (!rank.said_hello && !is_lost(event.rank())) --awaited_;
            break;
        case wire::RankEvent::EVENT_NOT_SET:
            break;
    }
}

void Membership::leave(uint32_t node) {
    if (!nodes_[node].left && !nodes_[node].lost) ++gone_;
    nodes_[node].left = true;
}

void Membership::lose(uint32_t node) {
    if (nodes_[node].lost) return;
    if (!nodes_[node].left) ++gone_;
    nodes_[node].lost = true;
    for (uint32_t rank : nodes_[node].ranks)
        if (!ranks_[rank].said_hello && ranks_[rank].state != RankState::exited) --awaited_;
}

bool Membership::is_lost(uint32_t rank) const {
    return ranks_[rank].node && nodes_[*ranks_[rank].node].lost;
}

std::vector<uint32_t> Membership::without_hello() const {
    std::vector<uint32_t> out;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank)
        if (!ranks_[rank].said_hello && ranks_[rank].state != RankState::exited && !is_lost(rank))
            out.push_back(rank);
    return out;
}

std::vector<uint32_t> Membership::nodes_not_joined() const {
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < nodes_.size(); ++i)
        if (!nodes_[i].joined) out.push_back(i);
    return out;
}

std::string Membership::host_of(uint32_t rank) const {
    if (rank >= ranks_.size() || !ranks_[rank].node) return "a node that has not connected";
    return nodes_[*ranks_[rank].node].host;
}

std::string Membership::state_of(uint32_t rank) const {
    const Rank& r = ranks_[rank];
    switch (r.state) {
        case RankState::unknown:
            return r.node ? "not started"
                          : "not started (not connected: no plugin, no daemon or no network there)";
        case RankState::started:
            return r.stopped ? "stopped by a signal, no hello" : "started, no hello";
        case RankState::hello:
            return r.stopped ? "stopped by a signal, not here yet" : "said hello, not here yet";
        case RankState::goodbye:
            return "has said goodbye";
        case RankState::vanished:
            return "closed its connection without goodbye";
        case RankState::exited:
            return describe_status(r.wait_status);
    }
    return "";
}

// The hosts of the ranks. Ranks whose node never connected may be on any host that has not.
std::string Membership::hosts_of(std::span<const uint32_t> ranks) const {
    std::set<uint32_t> nodes;
    bool homeless = false;
    for (uint32_t rank : ranks) {
        if (ranks_[rank].node)
            nodes.insert(*ranks_[rank].node);
        else
            homeless = true;
    }
    if (homeless)
        for (uint32_t node : nodes_not_joined()) nodes.insert(node);
    std::vector<std::string> hosts;
    for (uint32_t node : nodes)
        if (!nodes_[node].host.empty()) hosts.push_back(nodes_[node].host);
    return hosts.empty() ? plural(nodes.size(), "node") : compress_hostlist(hosts);
}

std::string Membership::name_nodes(std::span<const uint32_t> nodes) const {
    std::vector<std::string> hosts;
    std::vector<uint32_t> ranks;
    for (uint32_t node : nodes) {
        const auto& state = nodes_[node];
        hosts.push_back(state.host);
        ranks.insert(ranks.end(), state.ranks.begin(), state.ranks.end());
    }
    std::sort(ranks.begin(), ranks.end());
    const std::string where = compress_hostlist(hosts);
    return (nodes.size() == 1 ? "node " + where + " (" : plural(nodes.size(), "node") + " (" + where + ", ") +
           name_ranks(ranks) + ")";
}

std::string Membership::describe(std::span<const uint32_t> ranks) const {
    std::vector<std::pair<std::string, std::vector<uint32_t>>> groups;  // by state, in the order of the ranks
    for (uint32_t rank : ranks) {
        if (rank >= ranks_.size()) continue;
        const std::string state = state_of(rank);
        auto group =
            std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == state; });
        if (group == groups.end()) group = groups.insert(groups.end(), {state, {}});
        group->second.push_back(rank);
    }
    std::string out;
    for (const auto& [state, members] : groups) {
        out += (out.empty() ? "" : "; ") + hosts_of(members) + ": " + name_ranks(members) + " " + state;
        // A single rank is easiest to find by its process.
        const Rank& first = ranks_[members.front()];
        if (members.size() == 1 && first.pid != 0 && first.state != RankState::exited)
            out += " (pid " + std::to_string(first.pid) + ")";
    }
    return out;
}

void Membership::count(wire::StepStatus& status, Time start) const {
    status.set_world_size(static_cast<uint32_t>(ranks_.size()));
    std::vector<uint32_t> states(wire::StepStatus::State_ARRAYSIZE, 0);
    // When the last rank so far reached it, and how many have.
    struct Moment {
        std::optional<Time> Rank::*of;
        void (wire::StepStatus::*set)(int64_t);
        size_t reached = 0;
        Time last{};
    };
    Moment moments[] = {{&Rank::started, &wire::StepStatus::set_all_started_ms},
                        {&Rank::greeted, &wire::StepStatus::set_all_hello_ms},
                        {&Rank::got_id, &wire::StepStatus::set_all_id_ms},
                        {&Rank::ready, &wire::StepStatus::set_all_ready_ms}};
    for (const Rank& rank : ranks_) {
        ++states[static_cast<size_t>(wire_state(rank.state))];
        for (Moment& moment : moments) {
            const auto& at = rank.*moment.of;
            if (!at) continue;
            moment.last = moment.reached++ == 0 ? *at : std::max(moment.last, *at);
        }
    }
    for (uint32_t number : states) status.add_ranks_by_state(number);
    for (const Moment& moment : moments)
        if (moment.reached == ranks_.size()) (status.*moment.set)((moment.last - start).count());
    for (const Node& node : nodes_) {
        if (node.lost)
            status.set_nodes_lost(status.nodes_lost() + 1);
        else if (node.left)
            status.set_nodes_left(status.nodes_left() + 1);
        else if (!node.joined)
            status.set_nodes_not_connected(status.nodes_not_connected() + 1);
        else
            status.set_nodes_here(status.nodes_here() + 1);
    }
}

void Membership::report(uint32_t number, wire::StepStatus::Node& told) const {
    const Node& node = nodes_[number];
    told.set_node_rank(number);
    told.set_host(node.host);
    told.set_address(node.address);
    told.set_joined(node.joined);
    told.set_left(node.left);
    told.set_lost(node.lost);
}

void Membership::report_ranks(uint32_t number, wire::StepStatus::Node& told, Time start) const {
    for (uint32_t rank : nodes_[number].ranks) {
        auto* one = told.add_ranks();
        one->set_rank(rank);
        one->set_state(wire_state(ranks_[rank].state));
        one->set_pid(ranks_[rank].pid);
        one->set_wait_status(ranks_[rank].wait_status);
        one->set_stopped(ranks_[rank].stopped && ranks_[rank].state != RankState::exited);
        if (ranks_[rank].started) one->set_started_ms((*ranks_[rank].started - start).count());
        if (ranks_[rank].greeted) one->set_hello_ms((*ranks_[rank].greeted - start).count());
        if (ranks_[rank].got_id) one->set_id_ms((*ranks_[rank].got_id - start).count());
        if (ranks_[rank].ready) one->set_ready_ms((*ranks_[rank].ready - start).count());
    }
}

std::string Membership::table() const {
    auto column = [](std::string text, size_t width) {
        text.resize(std::max(text.size(), width), ' ');
        return text + "  ";
    };
    auto tiles_of = [this](const Rank& r) {
        const bool known = r.node && r.local_rank < nodes_[*r.node].tiles.size();
        const std::string text = known ? nodes_[*r.node].tiles[r.local_rank] : std::string();
        return parse_tiles(text).empty() ? std::string() : text;
    };
    size_t tiles_width = 0;
    size_t mask_width = 0;
    for (const Rank& r : ranks_) {
        const std::string tiles = tiles_of(r);
        if (tiles.empty()) continue;
        tiles_width = std::max({tiles_width, tiles.size(), size_t{5}});
        mask_width = std::max({mask_width, tile_mask(parse_tiles(tiles)).size(), size_t{9}});
    }
    const bool with_tiles = tiles_width > 0;
    std::string out = "RANK  NODE_RANK  LOCAL_RANK  ADDRESS          ";
    if (with_tiles) out += column("TILES", tiles_width) + column("TILE_MASK", mask_width);
    out += "HOST\n";
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        const Rank& r = ranks_[rank];
        const bool known = r.node.has_value();
        out += column(std::to_string(rank), 4) + column(known ? std::to_string(*r.node) : "?", 9) +
               column(known ? std::to_string(r.local_rank) : "?", 10) +
               column(known ? nodes_[*r.node].address : "?", 15);
        const std::string tiles = tiles_of(r);
        if (with_tiles)
            out += column(tiles.empty() ? "-" : tiles, tiles_width) +
                   column(tiles.empty() ? "-" : tile_mask(parse_tiles(tiles)), mask_width);
        out += host_of(rank) + "\n";
    }
    return out;
}

}  // namespace dp
