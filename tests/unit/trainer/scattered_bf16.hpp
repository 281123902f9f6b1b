// SPDX-License-Identifier: Apache-2.0
//
// What each communicator in host memory makes of a reduce-scatter of bf16 numbers: sums in f32, rounded once.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "trainer/base/bfloat16.hpp"
#include "trainer/base/communicator.hpp"
#include "trainer/base/partition.hpp"
#include "trainer/devices/cpu/cpu.hpp"

namespace dp::trainer {

// Every rank calls.
inline void expect_bf16_sums_to_scatter(Communicator& ranks) {
    constexpr std::int64_t kCount = 1000;
    const auto device = open_cpu(1);
    const Shard mine = shard_of(kCount, ranks.rank(), ranks.size());
    const Tensor tensor = device->make(Type::bf16, {kCount});
    std::vector<float> sums(kCount);
    for (std::int64_t rank = 0; rank < ranks.size(); ++rank)
        for (std::int64_t i = 0; i < kCount; ++i) {
            const Bfloat16 number =
                to_bfloat16(static_cast<float>(i) / 7.0f + static_cast<float>(rank) / 3.0f);
            sums[static_cast<std::size_t>(i)] += to_float(number);
            if (rank == ranks.rank()) tensor.data<Bfloat16>()[i] = number;
        }
    const auto done = ranks.reduce_scatter(tensor);
    ASSERT_TRUE(done) << done.error().message;
    for (std::int64_t i = mine.first; i < mine.first + mine.count; ++i)
        EXPECT_EQ(to_float(tensor.data<Bfloat16>()[i]),
                  to_float(to_bfloat16(sums[static_cast<std::size_t>(i)])))
            << i;
}

}  // namespace dp::trainer
