// SPDX-License-Identifier: Apache-2.0
#include "engine/membership.hpp"

#include <sys/wait.h>

#include <cstring>
#include <map>

#include "common/hostlist.hpp"
#include "common/text.hpp"

namespace dp {

std::string describe_status(int status) {
    if (WIFSIGNALED(status)) {
        const int sig = WTERMSIG(status);
        const char* name = sigabbrev_np(sig);
        return "was killed by signal " + std::to_string(sig) +
               (name ? " (SIG" + std::string(name) + ")" : "");
    }
    return "exited with code " + std::to_string(WEXITSTATUS(status));
}

Membership::Membership(uint32_t world_size, uint32_t nodes, std::span<const std::string> hosts)
    : nodes_(nodes), ranks_(world_size) {
    for (size_t i = 0; i < nodes_.size() && i < hosts.size(); ++i) nodes_[i].host = hosts[i];
}

std::optional<std::string> Membership::join(const wire::Join& join) {
    if (join.node_rank() >= nodes_.size())
        return "node rank " + std::to_string(join.node_rank()) + " of a step of " +
               plural(nodes_.size(), "node");
    Node& node = nodes_[join.node_rank()];
    if (node.joined) return "node rank " + std::to_string(join.node_rank()) + " has joined before";
    for (uint32_t rank : join.ranks()) {
        if (rank >= ranks_.size())
            return "rank " + std::to_string(rank) + " of a world of " + std::to_string(ranks_.size());
        if (ranks_[rank].node) return "rank " + std::to_string(rank) + " is on " + host_of(rank) + " already";
    }
    node.joined = true;
    node.host = printable(join.host(), 64);
    node.address = printable(join.address(), 64);
    node.ranks.assign(join.ranks().begin(), join.ranks().end());
    uint32_t local = 0;
    for (uint32_t rank : join.ranks()) {
        ranks_[rank].node = join.node_rank();
        ranks_[rank].local_rank = local++;
    }
    ++joined_;
    return std::nullopt;
}

void Membership::note(const wire::RankEvent& event) {
    if (event.rank() >= ranks_.size()) return;
    Rank& rank = ranks_[event.rank()];
    // Once a task has ended nothing that arrives late can make it live.
    if (rank.state == RankState::exited) return;
    switch (event.event_case()) {
        case wire::RankEvent::kStarted:
            rank.pid = event.started();
            if (rank.state == RankState::unknown) rank.state = RankState::started;
            break;
        case wire::RankEvent::kHello:
            if (!rank.said_hello) ++hellos_;
            rank.said_hello = true;
            rank.said_goodbye = false;
            rank.state = RankState::hello;
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
            break;
        case wire::RankEvent::EVENT_NOT_SET:
            break;
    }
}

bool Membership::all_left() const {
    for (const auto& node : nodes_)
        if (!node.left && !node.lost) return false;
    return true;
}

bool Membership::all_exited() const {
    for (const auto& rank : ranks_)
        if (rank.state != RankState::exited) return false;
    return true;
}

std::vector<uint32_t> Membership::without_hello() const {
    std::vector<uint32_t> out;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank)
        if (!ranks_[rank].said_hello && ranks_[rank].state != RankState::exited) out.push_back(rank);
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
            return "not started yet";
        case RankState::started:
            return "started, no hello yet";
        case RankState::hello:
            return "said hello, has not come to this point";
        case RankState::goodbye:
            return "has said goodbye";
        case RankState::vanished:
            return "closed its connection without goodbye";
        case RankState::exited:
            return describe_status(r.wait_status);
    }
    return "";
}

std::string Membership::describe(std::span<const uint32_t> ranks) const {
    // Ranks whose node never connected can only be named with all the nodes that have not.
    std::vector<uint32_t> homeless;
    std::map<std::pair<uint32_t, std::string>, std::vector<uint32_t>> groups;
    for (uint32_t rank : ranks) {
        if (rank >= ranks_.size()) continue;
        if (!ranks_[rank].node)
            homeless.push_back(rank);
        else
            groups[{*ranks_[rank].node, state_of(rank)}].push_back(rank);
    }
    std::string out;
    auto add = [&](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
    for (const auto& [where, members] : groups) {
        std::string state = where.second;
        // A single rank is best found by its process.
        if (members.size() == 1 && ranks_[members[0]].pid != 0 &&
            ranks_[members[0]].state != RankState::exited)
            state += ", pid " + std::to_string(ranks_[members[0]].pid);
        add(name_ranks(members) + " on " + nodes_[where.first].host + " (" + state + ")");
    }
    if (!homeless.empty()) {
        std::vector<std::string> hosts;
        for (uint32_t node : nodes_not_joined())
            if (!nodes_[node].host.empty()) hosts.push_back(nodes_[node].host);
        const std::string on =
            hosts.empty() ? plural(nodes_not_joined().size(), "node") : compress_hostlist(hosts);
        add(name_ranks(homeless) + " on " + on +
            " (not connected: no plugin, no daemon or no network there)");
    }
    return out;
}

std::string Membership::table() const {
    std::string out = "RANK  NODE_RANK  LOCAL_RANK  ADDRESS          HOST\n";
    auto column = [](std::string text, size_t width) {
        text.resize(std::max(text.size(), width), ' ');
        return text + "  ";
    };
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        const Rank& r = ranks_[rank];
        const bool known = r.node.has_value();
        out += column(std::to_string(rank), 4) + column(known ? std::to_string(*r.node) : "?", 9) +
               column(known ? std::to_string(r.local_rank) : "?", 10) +
               column(known ? nodes_[*r.node].address : "?", 15) + host_of(rank) + "\n";
    }
    return out;
}

}  // namespace dp
