// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a node get each other's files, whose memory they then share. Used by node_communicator.cpp and
// message_communicator.cpp; parallel/world.cpp makes the setting.
#pragma once

#include <gloo/context.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "trainer/base/node_place.hpp"
#include "trainer/base/result.hpp"
#include "trainer/parallel/peer_sockets.hpp"

namespace dp::trainer {

// What ranks that share memory need from the world. The tests have a world of threads.
struct NodeSetting {
    std::int64_t node = 0;  // this rank's: a number that the ranks of its node have, and no other rank
    // Connects these ranks of the world, one per node, which all call; makes a new mesh for each name.
    std::function<Result<std::shared_ptr<::gloo::Context>>(const std::string& name,
                                                           std::vector<std::uint32_t> ranks)>
        connect;
    // Every rank's text, by rank. Every rank calls.
    std::function<Result<std::vector<std::string>>(const std::string& mine)> gather;
    // While its result lives, calls the given function once the world is being ended. May be empty.
    std::function<std::shared_ptr<void>(std::function<void()>)> on_end;
    std::string unwanted;  // why this rank does not want to share memory; "" if it does
    // Of a collective or a message, as long as Gloo's: it waits for the slowest rank. A death is noticed at once.
    std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

// The memory of a rank that it shares with those of its node.
struct OwnFile {
    std::function<Result<int>(const NodePlace& place)> make;  // → its descriptor
    // The others' by local rank; the place of `me` is empty.
    std::function<Result<void>(std::vector<Fd> files, std::size_t me)> add_others;
};

struct NodeFiles {
    std::vector<std::int64_t> node_of_rank;
    NodePlace place;
    std::string
        why_not;  // why no ranks share memory, the same on all; "" if they do, or if each has its own node
    std::optional<PeerSockets> sockets;  // if this rank shares

    bool are_shared() const { return place.is_any_shared && why_not.empty(); }
};

// Every rank of the world calls, with its rank.
Result<NodeFiles> exchange_files(const NodeSetting& setting, std::int64_t rank, const OwnFile& own);

}  // namespace dp::trainer
