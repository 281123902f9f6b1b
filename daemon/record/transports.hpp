// SPDX-License-Identifier: Apache-2.0
//
// What ranks talk over in the record, pair by pair, as their NCCL says (--dp-nccl-debug). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "record.pb.h"

namespace dp {

// Pairs that a node tells of, and those of a run; the rest is counted.
inline constexpr size_t kMostPairs = 4096, kMostPairsOfRun = size_t{1} << 18;
// Bytes of "NET/IB/GDRDMA".
inline constexpr size_t kMaxVia = 40;

struct RecordedTransports {
    struct Pair {
        uint32_t from = 0, to = 0;  // ranks
        std::string via;
        uint32_t channels = 0;
    };
    std::vector<Pair> pairs;
    uint64_t left_out = 0;

    void merge(RecordedTransports more);
    void sort();  // in the order of a pair's members
};

// nullopt: NCCL's numbers are not those of the world's ranks, or nothing is known of this node's.
std::optional<record::Entry> transports_entry(uint32_t generation, const wire::NcclTransports& found,
                                              uint32_t world_size, const std::vector<uint32_t>& ranks);

// What a file says of ranks that the world has, made printable, within these limits.
RecordedTransports transports_of(const record::Transports& said, uint32_t world_size);

}  // namespace dp
