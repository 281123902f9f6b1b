// SPDX-License-Identifier: Apache-2.0
//
// Which nodes are let into a step, and what they may say they are.
#include "engine/membership.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dp {
namespace {

wire::Join join_of(uint32_t node, const std::vector<uint32_t>& ranks) {
    wire::Join join;
    join.set_node_rank(node);
    join.set_host("gpu" + std::to_string(node));
    for (uint32_t rank : ranks) join.add_ranks(rank);
    return join;
}

TEST(Membership, ANodeThatClaimsWhatIsNotItsOwnIsRefusedAndChangesNothing) {
    const struct {
        uint32_t node;
        std::vector<uint32_t> ranks;
        const char* why;
    } cases[] = {
        {3, {4}, "node rank 3 of a step of 3 nodes"},
        {4000000000u, {}, "node rank 4000000000 of a step of 3 nodes"},
        {0, {2, 3}, "node rank 0 has joined before"},
        {1, {2, 6}, "rank 6 of a world of 6"},
        {1, {4000000000u}, "rank 4000000000 of a world of 6"},
        {1, {2, 1}, "rank 1 is on gpu0 already"},
        {1, {2, 2}, "rank 2 twice"},
    };
    for (const auto& c : cases) {
        Membership members(6, 3, {});
        ASSERT_EQ(members.join(join_of(0, {0, 1}), Time(0)), std::nullopt);
        EXPECT_EQ(members.join(join_of(c.node, c.ranks), Time(0)), c.why);
        // Who these ranks really belong to still gets in.
        EXPECT_EQ(members.join(join_of(1, {2, 3}), Time(0)), std::nullopt) << c.why;
        EXPECT_EQ(members.join(join_of(2, {4, 5}), Time(0)), std::nullopt) << c.why;
        EXPECT_TRUE(members.all_joined());
        EXPECT_EQ(members.nodes()[0].ranks, (std::vector<uint32_t>{0, 1})) << c.why;
    }
}

// Components of a heterogeneous step may share a host: it has one line in DP_HOSTFILE.
TEST(Membership, HostsAreToldOnceByTheirLowestRanks) {
    Membership members(6, 4, {});
    const std::string longest(255, 'n');
    const struct {
        std::vector<uint32_t> ranks;
        std::string host;
    } nodes[] = {{{4, 5}, "gpu7"}, {{0}, longest}, {{}, "spare"}, {{1, 2, 3}, "gpu7"}};
    for (uint32_t node = 0; node < std::size(nodes); ++node) {
        wire::Join join = join_of(node, nodes[node].ranks);
        join.set_host(nodes[node].host);
        ASSERT_EQ(members.join(join, Time(0)), std::nullopt);
    }
    wire::Plan plan;
    members.tell_hosts(plan);
    EXPECT_EQ(plan.hosts(), longest + ",gpu7");
    EXPECT_EQ(plan.ranks_per_host(), "1,5");
}

}  // namespace
}  // namespace dp
