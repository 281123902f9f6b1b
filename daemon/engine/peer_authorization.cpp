// SPDX-License-Identifier: Apache-2.0
#include "engine/peer_authorization.hpp"

#include "common/interfaces.hpp"

namespace dp {

void PeerAuthorization::add_node(uint32_t node, const std::vector<std::string>& addresses,
                                 bool is_brokers_own) {
    if (is_brokers_own) own_ = node;
    // Loopback never leaves a host, so it can only mean the broker's own.
    for (const auto& address : addresses)
        if (!is_loopback(address)) nodes_by_address_[address].insert(node);
}

std::vector<uint32_t> PeerAuthorization::ask(const wire::WhoOwns& asked, Time now) {
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

void PeerAuthorization::refuse(uint64_t connection, std::string why) {
    pending_.erase(connection);
    decisions_.push_back({connection, std::move(why), 0});
}

// Refuses it if no other node may still know it.
void PeerAuthorization::not_from(uint32_t node, uint64_t connection, const std::string& problem) {
    auto& asked = pending_.at(connection).asked;
    asked.erase(node);
    if (asked.empty()) refuse(connection, problem);
}

void PeerAuthorization::answer(uint32_t node, const wire::Owner& said) {
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

void PeerAuthorization::remove_node(uint32_t node) {
    for (auto& [address, nodes] : nodes_by_address_) nodes.erase(node);
    std::erase_if(nodes_by_address_, [](const auto& known) { return known.second.empty(); });
    if (own_ == node) own_.reset();
    questions_.erase(node);
    for (auto it = pending_.begin(); it != pending_.end();) {
        const auto& [connection, pending] = *it++;
        if (pending.asked.contains(node)) not_from(node, connection, "its node has left the step");
    }
}

void PeerAuthorization::expire(Time now) {
    while (!pending_.empty() && now >= pending_.begin()->second.deadline)
        refuse(pending_.begin()->first,
               "its node did not say within " + words(kAuthorizationDeadline) + " to whom it belongs");
}

}  // namespace dp
