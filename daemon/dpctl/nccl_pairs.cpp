// SPDX-License-Identifier: Apache-2.0
#include "dpctl/nccl_pairs.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "record/transports.hpp"

namespace dp {
namespace {

constexpr std::string_view kInfo = " NCCL INFO ", kChannel = "Channel ";

// The number after `mark`, and what is behind it.
std::optional<uint32_t> number_after(std::string_view& text, std::string_view mark) {
    const size_t at = text.find(mark);
    if (at == text.npos) return std::nullopt;
    text.remove_prefix(at + mark.size());
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const auto number = parse_number<uint32_t>(text.substr(0, digits));
    text.remove_prefix(digits);
    return number;
}

// A communicator as its rank sees it.
struct Communicator {
    uint32_t size = 0, rank = 0;
    bool operator==(const Communicator&) const = default;
};

// "ncclCommInitRank comm 0x5581 rank 3 nranks 8 cudaDev 3 ... - Init START", "comm 0x5581 rank 3 nRanks 8 nNodes 1 localRanks 8 ...".
std::optional<Communicator> communicator_in(std::string_view words) {
    const size_t at = words.find("comm 0x");
    if (at == words.npos) return std::nullopt;
    words.remove_prefix(at);
    const auto rank = number_after(words, " rank ");
    if (!rank || !(words.starts_with(" nranks ") || words.starts_with(" nRanks "))) return std::nullopt;
    const auto size = parse_number<uint32_t>(words.substr(8, words.find(' ', 8) - 8));
    return size ? std::optional(Communicator{*size, *rank}) : std::nullopt;
}

std::string kind_of(std::string_view via) {
    const auto parts = split(via, '/');
    if (parts.size() < 2 || parts[0] == "SHM") return std::string(parts.empty() ? "" : parts[0]);
    return std::string(parts[0]) + "/" + std::string(parts[1]) +
           (via.find("/GDRDMA") != via.npos ? "/GDRDMA" : "");
}

struct Connection {
    NcclPairs::Pair pair;
    std::string channel;  // "00/0"
};

// "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "Channel 01/0 : 3[3] -> 4[0] [send] via NET/IB/0/GDRDMA". Who receives says the same
// again.
std::optional<Connection> connection_in(std::string_view words) {
    if (!words.starts_with(kChannel) || words.find("[receive]") != words.npos) return std::nullopt;
    const size_t via = words.find(" via ");
    if (via == words.npos) return std::nullopt;
    Connection found;
    words.remove_prefix(kChannel.size());
    found.channel = printable(words.substr(0, words.find(' ')), kMaxVia);
    found.pair.via = printable(kind_of(words.substr(via - kChannel.size() + 5)), kMaxVia);
    const auto from = number_after(words, " : "), to = number_after(words, "] -> ");
    if (!from || !to || found.pair.via.empty()) return std::nullopt;
    found.pair.from = *from;
    found.pair.to = *to;
    return found;
}

}  // namespace

// A thread sets up one communicator after the other. Connections that are made later, at the first use, may be another thread's: where the
// rank has communicators of one kind alone, they are of that.
NcclPairs pairs_in(std::string_view log) {
    std::map<std::string_view, Communicator> of_thread;  // its last one, by "host:pid:tid"
    std::vector<Communicator> all;
    std::vector<std::pair<std::optional<Communicator>, Connection>> connections;
    for (const std::string_view line : split(log, '\n')) {
        const size_t info = line.find(kInfo);
        if (info == line.npos) continue;
        const std::string_view thread = line.substr(0, line.find(' ')),
                               words = line.substr(info + kInfo.size());
        if (const auto communicator = communicator_in(words)) {
            of_thread[thread] = *communicator;
            if (std::ranges::find(all, *communicator) == all.end()) all.push_back(*communicator);
        } else if (auto connection = connection_in(words)) {
            const auto known = of_thread.find(thread);
            connections.emplace_back(known == of_thread.end() ? std::nullopt : std::optional(known->second),
                                     std::move(*connection));
        }
    }
    if (all.empty()) return {};
    const Communicator largest = *std::ranges::max_element(all, {}, &Communicator::size);
    // Of two that are as large, nobody knows which is the world.
    const auto is_as_large = [&](const Communicator& one) { return one.size == largest.size; };
    if (std::ranges::count_if(all, is_as_large) > 1) return {};
    NcclPairs found;
    found.world_size = largest.size;
    for (auto& [communicator, connection] : connections)
        if (communicator ? *communicator == largest : all.size() == 1)
            if (connection.pair.from == largest.rank)
                found.channels[std::move(connection.pair)].insert(std::move(connection.channel));
    return found;
}

void NcclPairs::add(const NcclPairs& other) {
    if (other.world_size < world_size) return;
    if (other.world_size > world_size) channels.clear();
    world_size = other.world_size;
    for (const auto& [pair, numbers] : other.channels) channels[pair].insert(numbers.begin(), numbers.end());
}

void NcclPairs::write(wire::NcclTransports& message) const {
    message.set_world_size(world_size);
    for (const auto& [pair, numbers] : channels) {
        if (message.pairs_size() == static_cast<int>(kMostPairs)) {
            message.set_pairs_left_out(static_cast<uint32_t>(channels.size() - kMostPairs));
            break;
        }
        auto& one = *message.add_pairs();
        one.set_from(pair.from);
        one.set_to(pair.to);
        one.set_via(pair.via);
        one.set_channels(static_cast<uint32_t>(numbers.size()));
    }
}

}  // namespace dp
