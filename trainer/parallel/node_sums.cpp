// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_sums.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "trainer/devices/cpu/parallel.hpp"

namespace dp::trainer {
namespace {

// Half of a page of each rank's memory: the CPU fetches ahead only within pages, and of few at a time.
constexpr std::int64_t kBlock = 512;

DP_WIDE_VECTORS void add(const float* x, std::int64_t count, float* sum) {
    for (std::int64_t i = 0; i < count; ++i) sum[i] += x[i];
}

std::size_t bytes(std::int64_t count) {
    return static_cast<std::size_t>(count) * sizeof(float);
}

}  // namespace

void add_up(std::span<float* const> from, Slice slice, std::span<float* const> to) {
    if (from.size() == 1) {  // as a whole, which is faster
        for (float* one : to)
            if (one != from.front())
                std::memcpy(one + slice.first, from.front() + slice.first, bytes(slice.count));
        return;
    }
    alignas(64) std::array<float, kBlock> sum;
    for (std::int64_t done = 0; done < slice.count; done += kBlock) {
        const std::int64_t at = slice.first + done, count = std::min(kBlock, slice.count - done);
        std::memcpy(sum.data(), from.front() + at, bytes(count));
        for (float* one : from.subspan(1)) add(one + at, count, sum.data());
        for (float* one : to) std::memcpy(one + at, sum.data(), bytes(count));
    }
}

}  // namespace dp::trainer
