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
    told_[node] = {{plain(transports.local()), plain(transports.network()), plain(transports.fell_back())},
                   plain(transports.log())};
    fresh_.insert(node);
    if (!due_) due_ = now + kTransportsCome;
}

std::vector<std::string> StepTransports::take(const Membership& members, Time now) {
    if (!due_) return {};
    const auto& nodes = members.nodes();
    bool all_told = true, all_fresh = true;
    for (uint32_t node = 0; node < nodes.size(); ++node) {
        if (!nodes[node].is_here() || nodes[node].ranks.empty()) continue;
        all_told &= told_.contains(node);
        all_fresh &= fresh_.contains(node);
    }
    if (!all_fresh && now < *due_) return {};
    due_.reset();
    fresh_.clear();
    std::set<Words> kinds;
    std::map<Words, std::vector<uint32_t>> news;  // ranks
    std::map<Words, std::string> logs;
    for (const auto& [node, told] : told_) {
        const auto& ranks = nodes.at(node).ranks;
        if (ranks.empty()) continue;
        kinds.insert(told.words);
        if (said_of_all_.contains(told.words) || !said_[told.words].insert(node).second) continue;
        news[told.words].insert(news[told.words].end(), ranks.begin(), ranks.end());
        logs.try_emplace(told.words, told.log);
    }
    const bool is_of_all = all_told && kinds.size() == 1;
    if (is_of_all) said_of_all_.insert(*kinds.begin());
    std::vector<std::string> lines;
    size_t kinds_told = 0;
    std::vector<uint32_t> left_out;
    for (const auto& [words, ranks] : news) {
        if (++kinds_told > kMostTransports) {
            left_out.insert(left_out.end(), ranks.begin(), ranks.end());
            continue;
        }
        const std::string hosts = members.hosts_of(ranks);
        lines.push_back("NCCL's transports" + (is_of_all ? "" : " on " + hosts) + ": " +
                        words.text(nodes.size() == 1));
        if (!words.fell_back.empty())
            lines.push_back("on " + hosts + " " + words.fell_back + "; see the lines with NET/ in " +
                            logs.at(words));
    }
    if (!left_out.empty())
        lines.push_back("NCCL's transports on " + members.hosts_of(left_out) + ": other kinds, not listed");
    return lines;
}

}  // namespace dp
