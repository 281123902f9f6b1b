// SPDX-License-Identifier: Apache-2.0
//
// A hang (--dp-hang-timeout) in the record: what the ranks were found to do, call by call. Ranks with equal calls are together. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "record.pb.h"

namespace dp {

// Of a rank's main thread: calls, innermost first, and bytes of each one's function and of its file.
inline constexpr size_t kMostFrames = 64, kMaxCallText = 128;
// Of a node: different stacks of one hang, and hangs. Then, of all nodes: different stacks of one hang.
inline constexpr size_t kMostStacks = 32, kMostHangs = 16, kMostStacksOfRun = 256;

struct RecordedCalls {
    struct Frame {
        std::string function, file;
        uint32_t line = 0;  // 0: not known
        bool operator==(const Frame&) const = default;
    };
    std::vector<uint32_t> ranks;  // ascending
    bool has_culprit = false;
    std::vector<Frame> frames;
    std::string incomplete;  // why there are no more; "" if these are all

    bool is_like(const RecordedCalls& other) const {
        return frames == other.frames && incomplete == other.incomplete && has_culprit == other.has_culprit;
    }
};

// `calls`: by rank, of the node's ranks.
record::Entry hang_entry(uint32_t generation, const wire::Hang& hang,
                         const std::map<uint32_t, wire::RankStacks::Thread>& calls);

struct CallsOfHang {
    std::vector<RecordedCalls> stacks;  // those of culprits first, then those of most ranks
    uint64_t ranks_left_out = 0;

    void merge(CallsOfHang more);
};

// What a file says: untrusted, so made printable, cut to these limits, and without ranks that the world has not.
CallsOfHang calls_of(const record::Hang& hang, uint32_t world_size);

// "load_batch (train.py:88)"
std::string in_words(const RecordedCalls::Frame& frame);

}  // namespace dp
