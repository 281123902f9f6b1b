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

PeerAuthorization::Inquiry PeerAuthorization::ask(uint64_t connection, const SocketEnds& ends, Time now) {
    std::set<uint32_t> nodes;
    if (is_loopback(ends.client)) {
        if (own_) nodes.insert(*own_);
    } else if (auto found = nodes_by_address_.find(ends.client); found != nodes_by_address_.end()) {
        nodes = found->second;
    }
    if (nodes.empty()) return {{}, {{connection, "no node of this step has that address"}}};
    std::erase_if(nodes, [&](uint32_t node) { return questions_[node] >= kMaxQuestions; });
    if (nodes.empty()) return {{}, {{connection, "its node does not answer"}}};
    Inquiry out{{nodes.begin(), nodes.end()}, {}};
    for (uint32_t node : nodes) ++questions_[node];
    if (pending_.size() >= kMaxUnvouched)
        out.decisions.push_back(
            refuse(pending_.begin(), "too many connections for which nobody has vouched yet"));
    pending_[connection] = {std::move(nodes), now + kAuthorizationDeadline, ends.client, ""};
    return out;
}

PeerAuthorization::Decision PeerAuthorization::refuse(std::map<uint64_t, Pending>::iterator which,
                                                      std::string why) {
    Decision out{which->first, std::move(why), 0};
    pending_.erase(which);
    return out;
}

std::optional<PeerAuthorization::Decision> PeerAuthorization::one_less(
    std::map<uint64_t, Pending>::iterator which, uint32_t node, const std::string& problem) {
    which->second.asked.erase(node);
    which->second.problem = problem;
    if (!which->second.asked.empty()) return std::nullopt;
    return refuse(which, which->second.problem);
}

std::optional<PeerAuthorization::Decision> PeerAuthorization::answer(uint32_t node, uint64_t connection,
                                                                     const SocketOwner& owner) {
    if (auto questions = questions_.find(node); questions != questions_.end() && questions->second > 0)
        --questions->second;
    auto found = pending_.find(connection);
    // A late answer, or one from a node that was not asked.
    if (found == pending_.end() || !found->second.asked.contains(node)) return std::nullopt;
    if (!owner.uid) return one_less(found, node, owner.problem);
    if (*owner.uid != owner_)
        return refuse(found, "it belongs to user id " + std::to_string(*owner.uid) +
                                 ", and this step to user id " + std::to_string(owner_));
    pending_.erase(found);
    return Decision{connection, "", node};
}

std::vector<PeerAuthorization::Decision> PeerAuthorization::remove_node(uint32_t node) {
    for (auto it = nodes_by_address_.begin(); it != nodes_by_address_.end();) {
        it->second.erase(node);
        it = it->second.empty() ? nodes_by_address_.erase(it) : std::next(it);
    }
    if (own_ == node) own_.reset();
    questions_.erase(node);
    std::vector<Decision> decisions;
    for (auto it = pending_.begin(); it != pending_.end();) {
        auto current = it++;
        if (!current->second.asked.contains(node)) continue;
        if (auto decision = one_less(current, node, "its node has left the step"))
            decisions.push_back(*decision);
    }
    return decisions;
}

std::vector<PeerAuthorization::Decision> PeerAuthorization::expire(Time now) {
    std::vector<Decision> decisions;
    while (!pending_.empty() && now >= pending_.begin()->second.deadline)
        decisions.push_back(
            refuse(pending_.begin(),
                   "its node did not say within " + words(kAuthorizationDeadline) + " to whom it belongs"));
    return decisions;
}

std::optional<Time> PeerAuthorization::next_deadline() const {
    if (pending_.empty()) return std::nullopt;
    return pending_.begin()->second.deadline;
}

}  // namespace dp
