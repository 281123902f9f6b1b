// SPDX-License-Identifier: Apache-2.0
#include "common/roots.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace dp {
namespace {

TEST(Roots, AreSpreadEvenlyAndTheFirstMemberIsOne) {
    struct {
        uint64_t size;
        uint32_t roots;
        std::vector<uint64_t> places;
    } const cases[] = {
        {1, 1, {0}},        {8, 1, {0}},    {8, 2, {0, 4}},    {8, 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {10, 3, {0, 3, 6}}, {7, 2, {0, 3}}, {129, 2, {0, 64}}, {16384, 4, {0, 4096, 8192, 12288}},
    };
    for (const auto& c : cases) {
        std::vector<uint64_t> found;
        for (uint64_t place = 0; place < c.size; ++place)
            if (auto root = root_at(place, c.roots, c.size)) {
                EXPECT_EQ(*root, found.size());
                found.push_back(place);
            }
        EXPECT_EQ(found, c.places) << c.size << " in " << c.roots;
    }
}

TEST(Roots, AlwaysAsManyAsAsked) {
    for (uint64_t size = 1; size <= 300; ++size)
        for (uint32_t roots = 1; roots <= size; ++roots) {
            uint32_t found = 0;
            for (uint64_t place = 0; place < size; ++place) found += root_at(place, roots, size).has_value();
            ASSERT_EQ(found, roots) << size;
            for (uint32_t index = 0; index < roots; ++index)
                ASSERT_EQ(root_at(place_of_root(index, roots, size), roots, size), index);
        }
}

}  // namespace
}  // namespace dp
