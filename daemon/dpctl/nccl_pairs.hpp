// SPDX-License-Identifier: Apache-2.0
//
// Which ranks talk to each other, and over what, by the words of their NCCL's logs (NCCL 2.18 to 2.30, NCCL_DEBUG=INFO with INIT). NCCL
// counts ranks within a communicator: only those of the largest one are told, for it can be the whole world. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "dp.pb.h"

namespace dp {

struct NcclPairs {
    struct Pair {
        uint32_t from = 0, to = 0;
        std::string via;  // "P2P/CUMEM", "SHM", "NET/IB/GDRDMA": without the adapter's number
        auto operator<=>(const Pair&) const = default;
    };
    uint32_t world_size = 0;                         // of that communicator; 0: none is known
    std::map<Pair, std::set<std::string>> channels;  // by their numbers

    // Of another rank.
    void add(const NcclPairs& other);
    void write(wire::NcclTransports& message) const;
};

// From one rank's log.
NcclPairs pairs_in(std::string_view log);

}  // namespace dp
