// SPDX-License-Identifier: Apache-2.0
//
// Which numbers dropout keeps: a hash of a key and of the number's place in the global batch, so that every
// device, and worlds of any size with the same global batch, keep the same ones. Nothing has to be kept for
// the backward pass.
#ifndef TRAINER_DEVICES_DROPOUT_HPP
#define TRAINER_DEVICES_DROPOUT_HPP

#include <cstdint>

#ifdef __CUDACC__
#define DP_ON_BOTH_DEVICES __host__ __device__
#else
#define DP_ON_BOTH_DEVICES
#endif

namespace dp::trainer {

struct Dropout {
    float rate;              // 0 <= rate < 1
    std::uint64_t key;       // of the step and of the layer
    std::int64_t first_row;  // of the tensor's rows in the global batch
};

// splitmix64's mixer (Steele, Lea, Flood 2014), as in random.hpp.
DP_ON_BOTH_DEVICES inline bool is_kept(const Dropout& dropout, std::int64_t columns, std::int64_t element) {
    std::uint64_t value =
        dropout.key +
        static_cast<std::uint64_t>(dropout.first_row * columns + element + 1) * 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    value ^= value >> 31;
    return static_cast<float>(value >> 40) * 0x1p-24f >= dropout.rate;
}

}  // namespace dp::trainer

#endif
