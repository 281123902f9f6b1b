// SPDX-License-Identifier: Apache-2.0
//
// Exchanges numbers of which each is on one rank, to the bit: by a sum of their bits, to which the other ranks add 0. (As floats, -0
// would become 0.) Two numbers go as one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

class OwnedNumbers {
 public:
    // At most `most` at a time. Allocates on the device now, so that nothing fails on one rank alone later.
    OwnedNumbers(Device& device, std::int64_t most)
        : device_(device), sums_(device.make(Type::i64, {(most + 1) / 2})) {}

    // Begins an exchange of that many.
    void begin(std::int64_t count) { words_.assign(static_cast<std::size_t>((count + 1) / 2), 0); }
    // This rank's from `at` on.
    void put(std::int64_t at, std::span<const float> numbers) {
        for (const float number : numbers) {
            const auto bits = static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(number));
            words_[static_cast<std::size_t>(at / 2)] += bits << (32 * (at % 2));
            ++at;
        }
    }
    // `sum`: over all ranks, which all call this, of a tensor. An error is one of communication.
    template <typename Sum>
    Result<void> exchange(const Sum& sum) {
        const Tensor sums = sums_.view(0, {static_cast<std::int64_t>(words_.size())});
        device_.upload(words_.data(), sums);
        DP_TRY(sum(sums));
        device_.download(sums, words_.data());
        device_.synchronize();
        return {};
    }
    void get(std::int64_t from, std::span<float> numbers) const {
        for (float& number : numbers) {
            number = std::bit_cast<float>(
                static_cast<std::uint32_t>(words_[static_cast<std::size_t>(from / 2)] >> (32 * (from % 2))));
            ++from;
        }
    }

 private:
    Device& device_;
    Tensor sums_;  // i64
    std::vector<std::uint64_t> words_;
};

}  // namespace dp::trainer
