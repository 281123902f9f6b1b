// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_sums.hpp"

#include <algorithm>

#include "trainer/devices/cpu/parallel.hpp"

namespace dp::trainer {
namespace {

// Half a page of each rank's memory: CPUs prefetch only within a page, and from few pages at a time.
constexpr std::int64_t kBlock = 512;

DP_WIDE_VECTORS void add(const float* x, std::int64_t count, float* sum) {
    for (std::int64_t i = 0; i < count; ++i) sum[i] += x[i];
}

}  // namespace

void add_up(std::span<float* const> numbers, const Shard& slice) {
    for (std::int64_t done = 0; done < slice.count; done += kBlock) {
        const std::int64_t at = slice.first + done, count = std::min(kBlock, slice.count - done);
        for (const float* one : numbers.subspan(1)) add(one + at, count, numbers.front() + at);
    }
}

}  // namespace dp::trainer
