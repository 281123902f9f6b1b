// SPDX-License-Identifier: Apache-2.0
#include "engine/start_deadlines.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

void join(Membership& members, uint32_t node, std::vector<uint32_t> ranks) {
    wire::Join join;
    join.set_node_rank(node);
    join.set_host("gpu" + std::to_string(node));
    for (uint32_t rank : ranks) join.add_ranks(rank);
    EXPECT_FALSE(members.join(join, Time(0)));
}

void hello(Membership& members, uint32_t rank) {
    wire::Hellos::Rank said;
    said.set_rank(rank);
    members.hello(said);
}

TEST(StartDeadlines, NodesThatDoNotComeAreNamedEverMoreRarelyAndThenAreTooLate) {
    const std::vector<std::string> hosts{"gpu0", "gpu1"};
    Membership members(4, 2, hosts);
    join(members, 0, {0, 1});
    constexpr Time kStarted{1000};
    StartDeadlines deadlines(Time(20000), kStarted);
    std::vector<Time> said;
    for (;;) {
        const auto at = deadlines.next_deadline(members);
        ASSERT_TRUE(at);
        EXPECT_FALSE(deadlines.check(members, *at - Time(1)));
        const auto late = deadlines.check(members, *at);
        ASSERT_TRUE(late);
        said.push_back(*at - kStarted);
        if (late->too_late) {
            EXPECT_EQ(late->line.find(
                          "2 of 4 ranks are connected within 20 s (--dp-timeout); missing: gpu1: ranks 2-3"),
                      0u)
                << late->line;
            break;
        }
        EXPECT_EQ(late->line.find("2 of 4 ranks are connected after "), 0u) << late->line;
    }
    EXPECT_EQ(said, (std::vector<Time>{Time(5000), Time(15000), Time(20000)}));
}

TEST(StartDeadlines, OnceOneRankHasSaidHelloAllHaveTo) {
    const std::vector<std::string> hosts{"gpu0"};
    Membership members(2, 1, hosts);
    join(members, 0, {0, 1});
    StartDeadlines deadlines(Time(20000), Time(1000));
    EXPECT_FALSE(deadlines.next_deadline(members)) << "programs without libdp never say it";
    EXPECT_FALSE(deadlines.check(members, Time(100000)));
    hello(members, 1);
    deadlines.hello(Time(99990), Time(100000));
    EXPECT_EQ(deadlines.next_deadline(members), Time(100000) + kFirstLateNotice);
    EXPECT_EQ(
        deadlines.check(members, Time(99990) + Time(20000))->line.find("1 of 2 ranks said hello within 20 s"),
        0u);
    hello(members, 0);
    EXPECT_FALSE(deadlines.next_deadline(members));
    EXPECT_FALSE(deadlines.check(members, Time(1000000)));
}

}  // namespace
}  // namespace dp
