// SPDX-License-Identifier: Apache-2.0
//
// Which numbers dropout keeps: a hash of a key and of the number's place in the global batch, so that every
// device, and worlds of any size with the same global batch, keep the same ones. The backward pass needs no
// saved mask. (For attention weights: attention_dropout.hpp.)
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define DP_ON_BOTH_DEVICES __host__ __device__
#else
#define DP_ON_BOTH_DEVICES
#endif

namespace dp::trainer {

struct Dropout {
    float rate = 0;              // 0 <= rate < 1
    std::uint64_t key = 0;       // of the step and of the layer
    std::int64_t first_row = 0;  // of the tensor's rows in the global batch
};

// Number `counter` of a key's: splitmix64 (Steele, Lea, Flood 2014), as in random.hpp.
DP_ON_BOTH_DEVICES inline std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
    std::uint64_t value = key + (counter + 1) * 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

DP_ON_BOTH_DEVICES inline bool is_kept(const Dropout& dropout, std::int64_t columns, std::int64_t element) {
    const auto counter = static_cast<std::uint64_t>(dropout.first_row * columns + element);
    return static_cast<float>(random_bits(dropout.key, counter) >> 40) * 0x1p-24f >= dropout.rate;
}

}  // namespace dp::trainer
