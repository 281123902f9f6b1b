// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/agreement.hpp"

#include <gmock/gmock.h>

#include <array>
#include <limits>

#include "thread_world.hpp"
#include "trainer/devices/cpu/cpu.hpp"

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

TEST(EqualOnAllRanks, ComparesAllBitsOfTheNumber) {
    struct Case {
        std::uint64_t others, last;
        bool equal;
    };
    const Case cases[] = {
        {0, 0, true},
        {~0ull, ~0ull, true},
        {1, 2, false},
        {1ull << 63, 0, false},
        {0x0123456789ABCDEF, 0x0123456789ABCDEF, true},
        {0x0123456789ABCDEF, 0x0123456889ABCDEF, false},
        {0x0123456789ABCDEF, 0x0123456789ABCDEE, false},
        {0x89ABCDEF01234567, 0x0123456789ABCDEF, false},  // the halves exchanged
    };
    for (const auto& c : cases) {
        ThreadWorld(3).run([&](Communicator& ranks) {
            const auto device = open_cpu(1);
            const auto equal = equal_on_all_ranks(ranks.rank() == 2 ? c.last : c.others, *device, ranks);
            ASSERT_TRUE(equal);
            EXPECT_EQ(*equal, c.equal) << c.others << " and " << c.last;
        });
    }
}

TEST(LargestOfAllRanks, IsTheSameForAll) {
    ThreadWorld(3).run([](Communicator& ranks) {
        const auto device = open_cpu(1);
        const auto largest = largest_of_all_ranks(
            ranks.rank() == 1 ? 0.5 : -static_cast<double>(ranks.rank()), *device, ranks);
        ASSERT_TRUE(largest);
        EXPECT_EQ(*largest, 0.5);
    });
}

}  // namespace
}  // namespace dp::trainer
