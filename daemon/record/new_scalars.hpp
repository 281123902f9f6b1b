// SPDX-License-Identifier: Apache-2.0
//
// What of the scalars that a node's ranks log (dp_log_scalar) becomes a part of a sample: each new value of the lowest rank that logs a name,
// because ranks mostly log the same, and people look at the lowest one's; of the other ranks, that a value is NaN or infinite, or finite again.
// So a record grows with the number of nodes, not of ranks. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>

#include "common/phase_page.hpp"
#include "record.pb.h"

namespace dp {

// Of one sample, whose entry must not become too long to be read (kMaxRecordEntry); the others are in the next one.
inline constexpr int kMostScalarsInSample = 2048;

class NewScalars {
 public:
    struct Rank {
        uint32_t task = 0;  // its place in the sample's lists
        uint32_t rank = 0;
        uint64_t connection = 0;  // of its world
        const PhasePage* page = nullptr;
    };
    // Names are told again.
    void begin_generation();
    // Of all ranks that have a page.
    void add_to(record::Sample& sample, std::span<const Rank> ranks);

 private:
    struct Seen {
        uint64_t logged = 0;
        bool is_finite = true;
        bool has_name = false;  // which is told in this generation
    };
    using OfProcess = std::array<Seen, kMostScalars>;
    std::map<uint64_t, OfProcess> seen_;  // by connection
};

}  // namespace dp
