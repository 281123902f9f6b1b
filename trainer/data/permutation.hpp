// SPDX-License-Identifier: Apache-2.0
//
// An order of any number of things that takes no memory: a Feistel network over the even number of bits that holds the number,
// walked until it is within (Black and Rogaway 2002). sampler.hpp shuffles sets with it that are too long for a list.
#pragma once

#include <array>
#include <cstdint>

#include "trainer/base/random.hpp"

namespace dp::trainer {

class Permutation {
 public:
    // Of 0 .. count-1; count > 0.
    Permutation(std::int64_t count, std::uint64_t key) : count_(static_cast<std::uint64_t>(count)) {
        while (half_ < 31 && (std::uint64_t{1} << (2 * half_)) < count_) ++half_;
        Random random(key, 0);
        for (auto& round : keys_) round = random.bits();
    }

    std::int64_t at(std::int64_t place) const {
        auto value = static_cast<std::uint64_t>(place);
        do {  // at most four times on average
            value = once(value);
        } while (value >= count_);
        return static_cast<std::int64_t>(value);
    }

 private:
    std::uint64_t count_;
    int half_ = 1;  // bits of each side
    std::array<std::uint64_t, 6> keys_{};

    std::uint64_t once(std::uint64_t value) const {
        const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
        std::uint64_t left = value >> half_, right = value & mask;
        for (const std::uint64_t key : keys_) {
            const std::uint64_t mixed = Random(key, right).bits() & mask;
            const std::uint64_t next = left ^ mixed;
            left = right;
            right = next;
        }
        return left << half_ | right;
    }
};

}  // namespace dp::trainer
