// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/agreement.hpp"

#include <gmock/gmock.h>

#include <array>
#include <limits>

#include "thread_world.hpp"
#include "trainer/devices/cpu.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;

TEST(Gather, HasEveryRanksNumbersInTheOrderOfRanks) {
    ThreadWorld(3).run([](Communicator& ranks) {
        const auto device = open_cpu(1);
        const std::array<std::int64_t, 2> mine{
            ranks.rank() * 10, ranks.rank() == 1 ? std::numeric_limits<std::int64_t>::min() : -1};
        const auto all = gather_of_all_ranks(mine, *device, ranks);
        EXPECT_TRUE(all);
        EXPECT_THAT(*all, ElementsAre(0, -1, 10, std::numeric_limits<std::int64_t>::min(), 20, -1));
    });
}

TEST(AllOrNone, PassesWhereAllDo) {
    ThreadWorld(3).run([](Communicator& ranks) {
        const auto device = open_cpu(1);
        EXPECT_TRUE(all_or_none({}, *device, ranks));
    });
}

TEST(AllOrNone, FailsOnAllRanksWithTheWordsOfTheFirstThatFailed) {
    ThreadWorld(4).run([](Communicator& ranks) {
        const auto device = open_cpu(1);
        Result<void> mine;
        if (ranks.rank() == 1) mine = fail(Fault::usage, "first");
        if (ranks.rank() == 3) mine = fail(Fault::checkpoint, "second");
        const auto all = all_or_none(mine, *device, ranks);
        EXPECT_FALSE(all);
        EXPECT_EQ(all.error().fault, Fault::usage);
        EXPECT_EQ(all.error().message, ranks.rank() == 1 ? "first" : "");
    });
}

}  // namespace
}  // namespace dp::trainer
