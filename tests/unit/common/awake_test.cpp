// SPDX-License-Identifier: Apache-2.0
#include "common/awake.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace dp {
namespace {

using std::chrono::milliseconds;

TEST(Awake, WaitsInSlicesUntilTheTimeIsUpOrItIsThere) {
    const struct {
        milliseconds time;
        size_t there_at;  // in which slice; 0: never
        std::vector<int> slices;
    } cases[] = {
        {milliseconds(0), 0, {0}},
        {milliseconds(0), 1, {0}},
        {milliseconds(300), 0, {300}},
        {milliseconds(1000), 0, {1000}},
        {milliseconds(2500), 0, {1000, 1000, 500}},
        {milliseconds(2500), 2, {1000, 1000}},
    };
    for (const auto& c : cases) {
        std::vector<int> slices;
        const bool there = wait_awake(c.time, [&](milliseconds slice) {
            slices.push_back(static_cast<int>(slice.count()));
            return slices.size() == c.there_at;
        });
        EXPECT_EQ(slices, c.slices);
        EXPECT_EQ(there, c.there_at != 0);
    }
}

}  // namespace
}  // namespace dp
