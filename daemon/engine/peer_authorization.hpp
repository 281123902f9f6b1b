// SPDX-License-Identifier: Apache-2.0
//
// Who may use a broker's port that has no authentication of its own (PyTorch's store): only sockets of the
// step's user, on the step's nodes. The node from which a connection comes looks up the owner of its other
// end (NETLINK_SOCK_DIAG) and tells the broker; until then not a byte is read. Everything else fails closed:
// an address that no node of the step has, a node that has left, no answer in time. Pure; the broker owns it.
//
// A node is found by its addresses, all of which its relay reports when it joins. If several nodes have an
// address (of a bridge for virtual machines, say), each of them is asked; the connection exists on only one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/interfaces.hpp"
#include "dp.pb.h"
#include "engine/time.hpp"

namespace dp {

// How long the lookup may take. The connection waits, with its bytes in the kernel.
inline constexpr Time kAuthorizationDeadline{5000};
// The most connections for which nobody has vouched yet; the oldest makes room for a newcomer. An answer
// takes a round trip, so under a flood the oldest is hardly ever a rank's.
inline constexpr size_t kMaxUnvouched = 1024;
// The most unanswered questions per node: a stopped relay must not fill the broker's memory.
inline constexpr size_t kMaxQuestions = 4096;

class PeerAuthorization {
 public:
    struct Decision {
        uint64_t connection = 0;
        std::string refused;  // why; empty: let it in
        uint32_t node = 0;    // it comes from there, where it is let in
        bool operator==(const Decision&) const = default;
    };

    explicit PeerAuthorization(uid_t owner) : owner_(owner) {}

    void add_node(uint32_t node, const std::vector<std::string>& addresses, bool is_brokers_own) {
        if (is_brokers_own) own_ = node;
        // Loopback never leaves a host, so it can only mean the broker's own.
        for (const auto& address : addresses)
            if (!is_loopback(address)) nodes_by_address_[address].insert(node);
    }
    // Whom to ask about a new connection; nobody if it is refused at once. Their numbers ascend.
    std::vector<uint32_t> ask(const wire::WhoOwns& asked, Time now) {
        std::set<uint32_t> nodes;
        if (is_loopback(asked.client_address())) {
            if (own_) nodes.insert(*own_);
        } else if (auto found = nodes_by_address_.find(asked.client_address());
                   found != nodes_by_address_.end()) {
            nodes = found->second;
        }
        const bool is_known = !nodes.empty();
        std::erase_if(nodes, [&](uint32_t node) { return questions_[node] >= kMaxQuestions; });
        if (nodes.empty()) {
            refuse(asked.connection(),
                   is_known ? "its node does not answer" : "no node of this step has that address");
            return {};
        }
        for (uint32_t node : nodes) ++questions_[node];
        if (pending_.size() >= kMaxUnvouched)
            refuse(pending_.begin()->first, "too many connections whose owner is not known yet");
        pending_[asked.connection()] = {nodes, now + kAuthorizationDeadline};
        return {nodes.begin(), nodes.end()};
    }
    void answer(uint32_t node, const wire::Owner& said) {
        const uint64_t connection = said.connection();
        if (auto questions = questions_.find(node); questions != questions_.end() && questions->second > 0)
            --questions->second;
        auto found = pending_.find(connection);
        // A late answer, or one from a node that was not asked.
        if (found == pending_.end() || !found->second.asked.contains(node)) return;
        if (!said.has_uid()) return not_from(node, connection, printable(said.problem()));
        if (said.uid() != owner_)
            return refuse(connection, "it belongs to user id " + std::to_string(said.uid()) +
                                          ", and this step to user id " + std::to_string(owner_));
        pending_.erase(found);
        decisions_.push_back({connection, "", node});
    }
    // The node has left or is lost: it answers nothing more, and none of its connections is let in.
    void remove_node(uint32_t node) {
        for (auto& [address, nodes] : nodes_by_address_) nodes.erase(node);
        std::erase_if(nodes_by_address_, [](const auto& known) { return known.second.empty(); });
        if (own_ == node) own_.reset();
        questions_.erase(node);
        for (auto it = pending_.begin(); it != pending_.end();) {
            const auto& [connection, pending] = *it++;
            if (pending.asked.contains(node)) not_from(node, connection, "its node has left the step");
        }
    }
    void expire(Time now) {
        while (!pending_.empty() && now >= pending_.begin()->second.deadline)
            refuse(pending_.begin()->first,
                   "its node did not say within " + words(kAuthorizationDeadline) + " to whom it belongs");
    }
    // What has been decided since the last call.
    std::vector<Decision> take_decisions() { return std::exchange(decisions_, {}); }
    std::optional<Time> next_deadline() const {
        return pending_.empty() ? std::nullopt : std::optional(pending_.begin()->second.deadline);
    }

 private:
    struct Pending {
        std::set<uint32_t> asked;
        Time deadline{};
    };

    uid_t owner_;
    std::map<std::string, std::set<uint32_t>> nodes_by_address_;
    std::optional<uint32_t> own_;
    std::map<uint64_t, Pending> pending_;   // the oldest first, with the first deadline
    std::map<uint32_t, size_t> questions_;  // not answered yet, by node
    std::vector<Decision> decisions_;

    void refuse(uint64_t connection, std::string why) {
        pending_.erase(connection);
        decisions_.push_back({connection, std::move(why), 0});
    }
    // Refuses it if no other node may still know it.
    void not_from(uint32_t node, uint64_t connection, const std::string& problem) {
        auto& asked = pending_.at(connection).asked;
        asked.erase(node);
        if (asked.empty()) refuse(connection, problem);
    }
};

}  // namespace dp
