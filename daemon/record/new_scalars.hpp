// SPDX-License-Identifier: Apache-2.0
//
// What of the scalars that a node's ranks log (dp_log_scalar) becomes a part of a sample: each new value of the lowest rank that
// logs a name, because ranks mostly log the same, and people look at the lowest one's; of the other ranks, that a value is NaN or
// infinite, or finite again. Nodes without rank 0 have those of every 10th sample only, in a small world from the 300th on: they are
// shown where rank 0 does not log the name, as in the last stage of a pipeline. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>

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
        uint64_t connection = 0;          // of its world
        const PhasePage* page = nullptr;  // null: it could not be read now
    };
    // Names are told again.
    void begin_generation(uint32_t world_size);
    // Of all ranks that have a world. `is_last`: one of them ends; what it has logged is not left for a later sample.
    void add_to(record::Sample& sample, std::span<const Rank> ranks, bool is_last = false);
    // Whether such a last sample would have any.
    bool has_new(std::span<const Rank> ranks) const;

 private:
    struct Seen {
        uint64_t logged = 0;
        bool is_finite = true;
        std::string name;  // as it was told in this generation
    };
    using OfProcess = std::array<Seen, kMostScalars>;
    std::map<uint64_t, OfProcess> seen_;  // by connection
    bool is_large_ = false;
    uint32_t samples_ = 0;  // of all generations
};

}  // namespace dp
