// SPDX-License-Identifier: Apache-2.0
//
// When OpenMP's threads are told to spin less; that they are is a test of the program (CMakeLists.txt).
#include "trainer/devices/cpu/spinning.hpp"

#include <gtest/gtest.h>

namespace dp::trainer::cpu {
namespace {

TEST(Spinning, IsBoundedWhereThreadsWaitForEachOtherAndTheUserHasNotSaidHow) {
    struct {
        int threads;
        const char *wait_policy, *spin_count;
        bool bounded;
    } const cases[] = {
        {2, nullptr, nullptr, true},   {64, nullptr, nullptr, true},   {1, nullptr, nullptr, false},
        {2, "active", nullptr, false}, {2, "passive", nullptr, false}, {2, nullptr, "300000", false},
        {2, "active", "1000", false},
    };
    for (const auto& c : cases)
        EXPECT_EQ(must_bound_spinning(c.threads, c.wait_policy, c.spin_count), c.bounded)
            << c.threads << " threads";
}

}  // namespace
}  // namespace dp::trainer::cpu
