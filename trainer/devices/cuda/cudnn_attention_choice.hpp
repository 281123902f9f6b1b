// SPDX-License-Identifier: Apache-2.0
//
// What cudnn_attention.cpp decides: how many sequences cuDNN's backward pass takes at a time, and whether its numbers stand for
// those of our kernels. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trainer/devices/cuda/attention_graph.hpp"

namespace dp::trainer {

inline constexpr std::int64_t kPlaceInWorkspace = 256;  // bytes: places begin at multiples of it

constexpr std::int64_t bytes_of_products(const AttentionShape& shape) {
    const std::int64_t bytes =
        shape.sequences * shape.heads * shape.sequence * static_cast<std::int64_t>(sizeof(float));
    return (bytes + kPlaceInWorkspace - 1) / kPlaceInWorkspace * kPlaceInWorkspace;
}

// Of the shape's sequences, as many as divide them evenly and have room in `most` bytes: one plan does for all, and the backward
// pass takes no memory that the estimate does not count already. cuDNN 9.19 keeps the gradients of scores in bf16, of whole tiles
// of 128, and some KiB; others may need a little more. 0: not even one has room.
constexpr std::int64_t sequences_at_a_time(const AttentionShape& shape, std::int64_t most) {
    constexpr std::int64_t kTile = 128, kBytes = 2, kBesides = 1 << 20;
    const std::int64_t side = (shape.sequence + kTile - 1) / kTile * kTile;
    const std::int64_t of_one =
        shape.heads * (side * side * kBytes + shape.sequence * static_cast<std::int64_t>(sizeof(float)));
    std::int64_t count = std::clamp<std::int64_t>((most - kBesides) / of_one, 0, shape.sequences);
    while (count > 0 && shape.sequences % count != 0) --count;
    return count;
}

// Of two results of the same work, number by number.
class Agreement {
 public:
    // `part`: how far apart they may be as a whole, of ours (root mean square). A single number may be four times as far away from
    // ours as that is of our largest one.
    explicit Agreement(double part) : part_(part) {}

    void add(float ours, float other) {
        const double own = static_cast<double>(ours), apart = static_cast<double>(other) - own;
        squares_ += own * own;
        squares_apart_ += apart * apart;
        largest_ = std::max(largest_, std::abs(own));
        is_finite_ = is_finite_ && std::isfinite(apart);
        largest_apart_ = std::max(largest_apart_, std::abs(apart));
    }
    // Of ours; NaN or infinite where a number is.
    double apart() const {
        return !is_finite_ ? HUGE_VAL : squares_apart_ == 0 ? 0 : std::sqrt(squares_apart_ / squares_);
    }
    bool holds() const { return is_finite_ && apart() <= part_ && largest_apart_ <= 4 * part_ * largest_; }

 private:
    double part_, squares_ = 0, squares_apart_ = 0, largest_ = 0, largest_apart_ = 0;
    bool is_finite_ = true;
};

}  // namespace dp::trainer
