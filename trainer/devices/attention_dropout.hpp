// SPDX-License-Identifier: Apache-2.0
//
// Which attention weights dropout keeps: as in dropout.hpp a hash of a key and of a weight's place in the
// global batch, here of its head, query and key. Used by all attention kernels.
//
// There are as many weights as scores, far more than other numbers, so one hash serves four of them with 16
// bits each: those of two queries that are eight apart and two keys that are eight apart. On tensor cores one
// lane has all four, whether the rows of its matrix are queries or keys (cuda/tensor_core.cuh).
#pragma once

#include <cstdint>

#include "trainer/devices/device.hpp"
#include "trainer/devices/dropout.hpp"

namespace dp::trainer {

class AttentionDropout {
 public:
    // `head`: its number among this rank's heads of all sequences of the batch.
    DP_ON_BOTH_DEVICES AttentionDropout(const Attention& a, std::int64_t head)
        : key_(a.dropout.key),
          side_(static_cast<std::uint64_t>((a.sequence + 15) / 16 * 8)),
          first_(
              static_cast<std::uint64_t>((a.dropout.first_row / a.sequence + head / a.heads) * a.all_heads +
                                         a.first_head + head % a.heads) *
              side_ * side_),
          dropped_(dropped_of(a.dropout.rate)) {}

    // The bits of the four weights to which this query and key belong.
    DP_ON_BOTH_DEVICES std::uint64_t four(std::int64_t query, std::int64_t key) const {
        return random_bits(key_, first_ + pair_of(query) * side_ + pair_of(key));
    }
    // `number` of a weight among them: plus 2 for the second query, plus 1 for the second key.
    DP_ON_BOTH_DEVICES bool is_kept(std::uint64_t four, int number) const {
        return static_cast<std::uint32_t>(four >> (16 * number) & 0xFFFF) >= dropped_;
    }
    DP_ON_BOTH_DEVICES bool is_kept(std::int64_t query, std::int64_t key) const {
        return is_kept(four(query, key), static_cast<int>((query & 8) / 4 + (key & 8) / 8));
    }

    // Of what is kept, which makes up for the rest: 1 / (1 - rate), with the rate that 16 bits can tell.
    DP_ON_BOTH_DEVICES float factor() const { return 65536.0f / static_cast<float>(65536 - dropped_); }

 private:
    std::uint64_t key_;
    std::uint64_t side_;     // pairs of queries, or of keys, of a sequence
    std::uint64_t first_;    // four of the head
    std::uint32_t dropped_;  // of 65536

    // 0 and 8 are a pair, 1 and 9, .. 7 and 15, then 16 and 24.
    DP_ON_BOTH_DEVICES static std::uint64_t pair_of(std::int64_t token) {
        const auto place = static_cast<std::uint64_t>(token);
        return place / 16 * 8 + place % 8;
    }
    DP_ON_BOTH_DEVICES static std::uint32_t dropped_of(float rate) {
        const auto dropped = static_cast<std::uint32_t>(rate * 65536.0f + 0.5f);
        return dropped < 65535 ? dropped : 65535;
    }
};

}  // namespace dp::trainer
