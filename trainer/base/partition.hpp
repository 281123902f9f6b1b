// SPDX-License-Identifier: Apache-2.0
//
// How things are shared out among ranks: contiguous parts, in the order of ranks, as even as they can be. The
// test set, checkpoints, the sharded optimizer and the all-gather that belongs to it all have the same parts.
#ifndef TRAINER_BASE_PARTITION_HPP
#define TRAINER_BASE_PARTITION_HPP

#include <cstdint>

namespace dp::trainer {

// The part of a rank: [first, first + count). The parts of all ranks are the whole, once.
struct Shard {
    std::int64_t first;
    std::int64_t count;
};

constexpr Shard shard_of(std::int64_t things, std::int64_t rank, std::int64_t world) {
    const std::int64_t first = things * rank / world;
    return {first, things * (rank + 1) / world - first};
}

// Things of the largest part.
constexpr std::int64_t largest_shard(std::int64_t things, std::int64_t world) {
    return (things + world - 1) / world;
}

}  // namespace dp::trainer

#endif
