// SPDX-License-Identifier: Apache-2.0
//
// How things are divided among ranks: contiguous parts, in rank order, as even as possible. The test set,
// checkpoints, the sharded optimizer and its all-gather all use the same parts.
#pragma once

#include <cstdint>
#include <vector>

namespace dp::trainer {

// A rank's part: [first, first + count). The parts of all ranks cover everything exactly once.
struct Shard {
    std::int64_t first, count;
};

constexpr Shard shard_of(std::int64_t things, std::int64_t rank, std::int64_t world) {
    const std::int64_t first = things * rank / world;
    return {first, things * (rank + 1) / world - first};
}

// The size of the largest part.
constexpr std::int64_t largest_shard(std::int64_t things, std::int64_t world) {
    return (things + world - 1) / world;
}

// Ascending.
inline std::vector<std::int64_t> divisors_of(std::int64_t number) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t one = 1; one <= number; ++one)
        if (number % one == 0) divisors.push_back(one);
    return divisors;
}

}  // namespace dp::trainer
