// SPDX-License-Identifier: Apache-2.0
#include "engine/membership.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/text.hpp"
#include "common/hostfile.hpp"
#include "common/hostlist.hpp"
#include "common/wait_status.hpp"
#include "engine/election.hpp"
#include "engine/table.hpp"
#include "tiles/shares.hpp"

namespace dp {

Membership::Membership(uint32_t world_size, uint32_t nodes, std::span<const std::string> hosts, Time start)
    : nodes_(nodes), ranks_(world_size), start_(start), awaited_(world_size) {
    for (size_t i = 0; i < nodes_.size() && i < hosts.size(); ++i) nodes_[i].host = hosts[i];
    for (uint32_t rank = 0; rank < world_size; ++rank) ranks_[rank].told.set_rank(rank);
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
    node.clock = clamped(join.clock_ms());
    node.clock_ahead = node.clock - now;
    node.host = printable(join.host(), 255);  // the longest name of DNS
    node.address = printable(join.address(), 64);
    node.port = static_cast<uint16_t>(join.port());
    node.tasks = std::max(join.tasks(), static_cast<uint32_t>(join.ranks_size()));
    for (int i = 0; i < std::min(join.tiles_size(), join.ranks_size()); ++i)
        node.tiles.push_back(printable(join.tiles(i), kMaxTilesText));
    give_ranks(join.node_rank(), std::vector(join.ranks().begin(), join.ranks().end()));
    ++joined_;
    return std::nullopt;
}

void Membership::give_ranks(uint32_t number, std::span<const uint32_t> ranks) {
    nodes_[number].ranks.assign(ranks.begin(), ranks.end());
    for (uint32_t local = 0; local < ranks.size(); ++local) {
        ranks_[ranks[local]].node = number;
        ranks_[ranks[local]].local_rank = local;
    }
}

void Membership::set_clock(uint32_t node, int64_t clock_ms, Time now) {
    if (!nodes_[node].joined || clock_ms <= 0) return;
    nodes_[node].clock = clamped(clock_ms);
    nodes_[node].clock_ahead = nodes_[node].clock - now;
}

// From a node's clock to the time since the broker's start.
int64_t Membership::since_start(const Rank& rank, int64_t at_ms) const {
    return (clamped(at_ms) - nodes_[*rank.node].clock_ahead - start_).count();
}

void Membership::note_id(uint32_t rank, Time now) {
    if (!ranks_[rank].told.has_id_ms()) ranks_[rank].told.set_id_ms((now - start_).count());
}

void Membership::hello(const wire::Hellos::Rank& said) {
    Rank& rank = ranks_[said.rank()];
    // Once a task has ended, no late message can revive it.
    if (rank.has_exited()) return;
    if (!rank.said_hello) {
        ++hellos_;
        --awaited_;
    }
    rank.said_hello = true;
    rank.said_goodbye = false;
    rank.told.set_state(State::HELLO);
    // The pid as the rank sees it, which differs in a container from its node's.
    if (rank.told.pid() == 0) rank.told.set_pid(said.pid());
    if (!rank.told.has_hello_ms()) rank.told.set_hello_ms(since_start(rank, said.at_ms()));
}

void Membership::note(const wire::RankEvent& event) {
    Rank& rank = ranks_[event.rank()];
    if (rank.has_exited()) return;
    wire::StepStatus::Rank& told = rank.told;
    if (event.has_started()) {
        told.set_pid(event.started());
        if (!told.has_started_ms()) ++started_;
        if (told.state() == State::NOT_STARTED) told.set_state(State::STARTED);
        told.set_started_ms(since_start(rank, event.at_ms()));
    }
    if (event.has_stopped()) told.set_stopped(event.stopped());
    if (event.has_ready() && !told.has_ready_ms()) told.set_ready_ms(since_start(rank, event.at_ms()));
    if (event.has_goodbye()) {
        rank.said_goodbye = true;
        told.set_state(State::GOODBYE);
    }
    if (event.has_vanished()) told.set_state(State::VANISHED);
    if (event.has_exited()) {
        told.set_wait_status(event.exited());
        told.set_state(State::EXITED);
        told.set_stopped(false);
        ++exited_;
        if (!rank.said_hello && !is_lost(event.rank())) --awaited_;
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
        if (!ranks_[rank].said_hello && !ranks_[rank].has_exited()) --awaited_;
}

void Membership::set_unfit(uint32_t node) {
    nodes_[node].tasks = 0;
    nodes_[node].port = 0;
}

std::vector<NodeOfWorld> Membership::world() const {
    std::vector<NodeOfWorld> out;
    for (const Node& node : nodes_) out.push_back({node.is_here() && node.tasks > 0, node.tasks, node.ranks});
    return out;
}

void Membership::begin_generation(const NextWorld& world) {
    ranks_.assign(world.size, {});
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].told.set_rank(rank);
    for (uint32_t node = 0; node < nodes_.size(); ++node) give_ranks(node, world.ranks[node]);
    hellos_ = exited_ = started_ = 0;
    awaited_ = ranks_.size();
}

// The nodes with ranks, by their lowest ones.
std::vector<uint32_t> Membership::nodes_by_lowest_rank() const {
    std::map<uint32_t, uint32_t> by_lowest;
    for (uint32_t node = 0; node < nodes_.size(); ++node)
        if (const auto& ranks = nodes_[node].ranks; !ranks.empty())
            by_lowest.emplace(*std::ranges::min_element(ranks), node);
    std::vector<uint32_t> nodes;
    for (const auto& [rank, node] : by_lowest) nodes.push_back(node);
    return nodes;
}

void Membership::tell_hosts(wire::Plan& plan) const {
    std::vector<std::string> hosts;
    std::vector<uint32_t> counts;
    std::map<std::string_view, size_t> numbers;
    for (const uint32_t node : nodes_by_lowest_rank()) {
        const auto ranks = static_cast<uint32_t>(nodes_[node].ranks.size());
        const auto [found, is_new] = numbers.try_emplace(nodes_[node].host, hosts.size());
        if (is_new) {
            hosts.push_back(nodes_[node].host);
            counts.push_back(ranks);
        } else {
            counts[found->second] += ranks;  // components of a heterogeneous step may share a host
        }
    }
    plan.set_hosts(compress_hostlist(hosts));
    plan.set_ranks_per_host(compress_counts(counts));
}

std::vector<wire::Place> Membership::places() const {
    const std::vector<uint32_t> by_rank = nodes_by_lowest_rank();
    std::vector<wire::Place> places(nodes_.size());
    for (uint32_t number = 0; number < by_rank.size(); ++number)
        places[by_rank[number]].set_node_rank(number);
    for (uint32_t node = 0; node < nodes_.size(); ++node) {
        places[node].mutable_ranks()->Add(nodes_[node].ranks.begin(), nodes_[node].ranks.end());
        places[node].set_nodes(static_cast<uint32_t>(by_rank.size()));
        places[node].set_world_size(static_cast<uint32_t>(ranks_.size()));
        places[node].set_is_unfit(nodes_[node].joined && nodes_[node].tasks == 0);
    }
    return places;
}

std::vector<uint32_t> Membership::here() const {
    std::vector<uint32_t> out;
    for (uint32_t node = 0; node < nodes_.size(); ++node)
        if (nodes_[node].is_here()) out.push_back(node);
    return out;
}

// Spares first, then by rank: whoever follows gets rank 0, and most ranks keep their nodes.
void Membership::name_successors(wire::Roll& roll, uint32_t broker, size_t most) const {
    std::vector<std::pair<int64_t, uint32_t>> order;  // lowest rank, node
    for (const uint32_t node : here()) {
        const auto& [ranks, tasks] = std::tie(nodes_[node].ranks, nodes_[node].tasks);
        if (node == broker || nodes_[node].port == 0 || tasks < roll.ranks_per_node()) continue;
        order.emplace_back(ranks.empty() ? -1 : int64_t{*std::ranges::min_element(ranks)}, node);
    }
    std::ranges::sort(order);
    if (order.size() > most) order.resize(most);
    for (const auto& [rank, node] : order) {
        auto& successor = *roll.add_successors();
        successor.set_node_rank(node);
        successor.set_host(nodes_[node].host);
        successor.set_address(nodes_[node].address);
        successor.set_port(nodes_[node].port);
    }
}

std::vector<uint32_t> Membership::presume_lost(const wire::Roll& roll) {
    std::vector<uint32_t> lost;
    for (const uint32_t node : nodes_of(roll, static_cast<uint32_t>(nodes_.size())))
        if (!nodes_[node].joined) lost.push_back(node);
    std::ranges::stable_partition(lost, [&](uint32_t node) { return node == roll.broker(); });
    const auto groups =
        ranks_of_lost(static_cast<uint32_t>(ranks_.size()), world(), lost.size(), roll.ranks_per_node());
    for (size_t i = 0; i < groups.size() && i < lost.size(); ++i) give_ranks(lost[i], groups[i]);
    for (Node& node : nodes_) {
        if (node.joined) continue;
        node.joined = node.lost = true;
        ++joined_;
        ++gone_;
    }
    lost.resize(std::min(lost.size(), groups.size()));
    return lost;
}

uint32_t Membership::spares() const {
    return static_cast<uint32_t>(std::ranges::count_if(nodes_, [](const Node& n) { return n.is_spare(); }));
}

bool Membership::is_lost(uint32_t rank) const {
    return ranks_[rank].node && nodes_[*ranks_[rank].node].lost;
}

std::vector<uint32_t> Membership::without_hello() const {
    std::vector<uint32_t> out;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank)
        if (!ranks_[rank].said_hello && !ranks_[rank].has_exited() && !is_lost(rank)) out.push_back(rank);
    return out;
}

std::vector<uint32_t> Membership::not_joined() const {
    std::vector<uint32_t> out;
    for (uint32_t node = 0; node < nodes_.size(); ++node)
        if (!nodes_[node].joined) out.push_back(node);
    return out;
}

std::vector<uint32_t> Membership::without_node() const {
    std::vector<uint32_t> out;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank)
        if (!ranks_[rank].node) out.push_back(rank);
    return out;
}

std::string Membership::host_of(uint32_t rank) const {
    return ranks_[rank].node ? nodes_[*ranks_[rank].node].host : "a node that has not connected";
}

std::string Membership::state_of(uint32_t rank) const {
    const wire::StepStatus::Rank& told = ranks_[rank].told;
    switch (told.state()) {
        case State::STARTED:
            return told.stopped() ? "stopped by a signal, no hello" : "started, no hello";
        case State::HELLO:
            return told.stopped() ? "stopped by a signal, has not arrived" : "said hello, has not arrived";
        case State::GOODBYE:
            return "has said goodbye";
        case State::VANISHED:
            return "closed its connection without goodbye";
        case State::EXITED:
            return describe_status(told.wait_status());
        default:
            return ranks_[rank].node
                       ? "not started"
                       : "not started (not connected: no plugin, no daemon or no network there)";
    }
}

// The hosts of the ranks. Ranks whose node never connected may be on any host that has not.
std::string Membership::hosts_of(std::span<const uint32_t> ranks) const {
    std::set<uint32_t> nodes;
    for (uint32_t rank : ranks)
        if (ranks_[rank].node) nodes.insert(*ranks_[rank].node);
    const bool homeless = std::ranges::any_of(ranks, [this](uint32_t rank) { return !ranks_[rank].node; });
    for (uint32_t node = 0; homeless && node < nodes_.size(); ++node)
        if (!nodes_[node].joined) nodes.insert(node);
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
           (!ranks.empty()      ? name_ranks(ranks)
            : nodes.size() == 1 ? "a spare"
                                : "spares") +
           ")";
}

std::string Membership::describe(std::span<const uint32_t> ranks) const {
    std::vector<std::pair<std::string, std::vector<uint32_t>>> groups;  // by state, in the order of the ranks
    for (uint32_t rank : ranks) {
        const std::string state = state_of(rank);
        auto group = std::ranges::find(
            groups, state, [](const auto& g) -> auto& { return g.first; });
        if (group == groups.end()) group = groups.insert(groups.end(), {state, {}});
        group->second.push_back(rank);
    }
    std::string out;
    for (const auto& [state, members] : groups) {
        out += (out.empty() ? "" : "; ") + hosts_of(members) + ": " + name_ranks(members) + " " + state;
        // A single rank is easiest to find by its process.
        const Rank& first = ranks_[members.front()];
        if (members.size() == 1 && first.told.pid() != 0 && !first.has_exited())
            out += " (pid " + std::to_string(first.told.pid()) + ")";
    }
    return out;
}

void Membership::count(wire::StepStatus& status) const {
    status.set_world_size(static_cast<uint32_t>(ranks_.size()));
    std::vector<uint32_t> states(wire::StepStatus::State_ARRAYSIZE, 0);
    for (const Rank& rank : ranks_) ++states[rank.told.state()];
    status.mutable_ranks_by_state()->Add(states.begin(), states.end());
    // When the last rank reached a moment of the start, once all have.
    using Told = wire::StepStatus::Rank;
    const struct {
        bool (Told::*reached)() const;
        int64_t (Told::*at)() const;
        void (wire::StepStatus::*set)(int64_t);
    } moments[] = {{&Told::has_started_ms, &Told::started_ms, &wire::StepStatus::set_all_started_ms},
                   {&Told::has_hello_ms, &Told::hello_ms, &wire::StepStatus::set_all_hello_ms},
                   {&Told::has_id_ms, &Told::id_ms, &wire::StepStatus::set_all_id_ms},
                   {&Told::has_ready_ms, &Told::ready_ms, &wire::StepStatus::set_all_ready_ms}};
    for (const auto& [reached, at, set] : moments) {
        int64_t last = INT64_MIN;
        bool all = true;
        for (const Rank& rank : ranks_) {
            all = all && (rank.told.*reached)();
            last = std::max(last, (rank.told.*at)());
        }
        if (all) (status.*set)(last);
    }
    const auto nodes = [this](auto is) { return static_cast<uint32_t>(std::ranges::count_if(nodes_, is)); };
    status.set_nodes_here(nodes([](const Node& node) { return node.is_here(); }));
    status.set_nodes_lost(nodes([](const Node& node) { return node.lost; }));
    status.set_nodes_left(nodes([](const Node& node) { return node.left && !node.lost; }));
    status.set_nodes_not_connected(static_cast<uint32_t>(nodes_.size()) - status.nodes_here() -
                                   status.nodes_lost() - status.nodes_left());
}

void Membership::report(uint32_t number, wire::StepStatus::Node& told, bool with_ranks) const {
    const Node& node = nodes_[number];
    told.set_node_rank(number);
    told.set_host(node.host);
    told.set_address(node.address);
    told.set_joined(node.joined);
    told.set_left(node.left);
    told.set_lost(node.lost);
    told.set_spare(node.is_spare());
    if (with_ranks)
        for (uint32_t rank : node.ranks) *told.add_ranks() = ranks_[rank].told;
}

std::string Membership::table() const {
    // Wide enough for any IPv4 address.
    std::vector<std::vector<std::string>> rows{
        {"RANK", "NODE_RANK", "LOCAL_RANK", "ADDRESS        ", "TILES", "TILE_MASK", "HOST"}};
    bool with_tiles = false;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        const Rank& r = ranks_[rank];
        const Node* node = r.node ? &nodes_[*r.node] : nullptr;
        const std::string tiles = node && r.local_rank < node->tiles.size() ? node->tiles[r.local_rank] : "";
        const auto numbers = parse_tiles(tiles);
        with_tiles |= !numbers.empty();
        rows.push_back({std::to_string(rank), node ? std::to_string(*r.node) : "?",
                        node ? std::to_string(r.local_rank) : "?", node ? node->address : "?",
                        numbers.empty() ? "-" : tiles, numbers.empty() ? "-" : tile_mask(numbers),
                        host_of(rank)});
    }
    if (!with_tiles)
        for (auto& row : rows) row.erase(row.begin() + 4, row.begin() + 6);
    return aligned(rows);
}

}  // namespace dp
