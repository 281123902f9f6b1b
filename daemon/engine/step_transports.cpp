// SPDX-License-Identifier: Apache-2.0
#include "engine/step_transports.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace dp {
namespace {

constexpr size_t kMaxWords = 500;  // bytes, of a node's

}  // namespace

// "P2P over NVLink inside nodes, IB mlx5_0 between nodes"; of one node without the places.
std::string StepTransports::Words::text(bool is_one_node) const {
    std::vector<std::string> parts;
    if (!local.empty()) parts.push_back(local + (is_one_node ? "" : " inside nodes"));
    if (!network.empty()) parts.push_back(network + (is_one_node ? "" : " between nodes"));
    return join(parts, ", ");
}

void StepTransports::note(uint32_t node, const wire::NcclTransports& transports, Time now) {
    const auto plain = [](const std::string& text) { return printable(text, kMaxWords); };
    told_[node] = {plain(transports.local()), plain(transports.network()), plain(transports.fell_back())};
    if (!due_) due_ = now + kTransportsCome;
}

std::vector<std::string> StepTransports::take(const Membership& members, Time now) {
    if (!due_) return {};
    const auto& nodes = members.nodes();
    bool all_told = true;
    for (uint32_t node = 0; node < nodes.size(); ++node)
        all_told &= !nodes[node].is_here() || nodes[node].ranks.empty() || told_.contains(node);
    if (!all_told && now < *due_) return {};
    due_.reset();
    std::map<Words, std::vector<uint32_t>> ranks;
    for (const auto& [node, words] : told_) {
        const auto& of_node = nodes.at(node).ranks;
        ranks[words].insert(ranks[words].end(), of_node.begin(), of_node.end());
    }
    std::vector<std::string> lines;
    for (const auto& [words, of] : ranks) {
        if (said_.size() >= kMostTransportLines || !said_.insert(words).second || of.empty()) continue;
        const std::string where = all_told && ranks.size() == 1 ? "" : " on " + members.hosts_of(of);
        lines.push_back("NCCL's transports" + where + ": " + words.text(nodes.size() == 1));
        if (!words.fell_back.empty()) lines.push_back("on " + members.hosts_of(of) + " " + words.fell_back);
    }
    return lines;
}

}  // namespace dp
