// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/partition.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace dp::trainer {
namespace {

TEST(Shard, ShardsOfAllRanksAreTheWholeOnce) {
    for (std::int64_t things : {0, 1, 5, 10000, 10007}) {
        for (std::int64_t world : {1, 2, 3, 7, 8, 16}) {
            std::int64_t next = 0, largest = 0;
            for (std::int64_t rank = 0; rank < world; ++rank) {
                const Shard shard = shard_of(things, rank, world);
                EXPECT_EQ(shard.first, next);
                EXPECT_LE(shard.count, things / world + 1) << "uneven";
                next += shard.count;
                largest = std::max(largest, shard.count);
            }
            EXPECT_EQ(next, things);
            EXPECT_EQ(largest_shard(things, world), largest);
        }
    }
}

}  // namespace
}  // namespace dp::trainer
