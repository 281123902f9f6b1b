// SPDX-License-Identifier: Apache-2.0
//
// --dp-spares and --dp-min-nodes: who has which ranks after nodes were lost.
#include "engine/next_world.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

using Ranks = std::vector<std::vector<uint32_t>>;

struct Wish {
    uint32_t spares = 0;
    std::optional<uint32_t> min_nodes = {};
    std::optional<uint32_t> tensor = {};
};

Settings settings_of(const Wish& wish) {
    Settings settings;
    settings.on_failure = FailureAction::restart;
    settings.spares = wish.spares;
    settings.min_nodes = wish.min_nodes;
    settings.tensor = wish.tensor;
    return with_defaults(settings);
}

// Two tasks a node, if it has no ranks.
std::vector<NodeOfWorld> nodes_of(const Ranks& ranks, std::initializer_list<size_t> lost) {
    std::vector<NodeOfWorld> nodes;
    for (const auto& one : ranks)
        nodes.push_back({true, one.empty() ? 2 : static_cast<uint32_t>(one.size()), one});
    for (const size_t node : lost) nodes[node].is_here = false;
    return nodes;
}

TEST(NextWorld, GivesTheRanksOfLostNodesToSparesOrGoesOnWithoutThem) {
    const Ranks four = {{0, 1}, {2, 3}, {}, {}};
    const struct {
        Ranks before;
        std::initializer_list<size_t> lost;
        Wish wish;
        Ranks after;
        std::vector<uint32_t> came;
        uint32_t broker = 0;
    } cases[] = {
        {four, {}, {2}, four, {}},
        {four, {1}, {2}, {{0, 1}, {}, {2, 3}, {}}, {2}},
        {four, {0, 1}, {2}, {{}, {}, {0, 1}, {2, 3}}, {2, 3}, 2},
        {four, {0, 2}, {2}, {{}, {2, 3}, {}, {0, 1}}, {3}, 3},
        // Rank 0 moves to the broker.
        {four, {0, 1}, {2}, {{}, {}, {2, 3}, {0, 1}}, {2, 3}, 3},
        {four, {0, 2}, {2}, {{}, {0, 1}, {}, {2, 3}}, {3}, 1},
        {{{0, 1}, {}, {}}, {0}, {2}, {{}, {}, {0, 1}}, {2}, 2},
        {{{0, 1}, {2, 3}, {4, 5}}, {0}, {0, 1}, {{}, {2, 3}, {0, 1}}, {}, 2},
        {{{0}, {1, 2}, {3}}, {0}, {0, 1}, {{}, {1, 2}, {0}}, {}, 2},
        // A spare that is lost leaves the world as it is.
        {four, {2}, {2}, {{0, 1}, {2, 3}, {}, {}}, {}},
        // The others move up, in their order.
        {{{0, 1}, {2, 3}, {4, 5}}, {1}, {0, 1}, {{0, 1}, {}, {2, 3}}, {}},
        {{{0, 1}, {2, 3}, {4, 5}}, {0, 1}, {0, 1}, {{}, {}, {0, 1}}, {}, 2},
        // One comes, and one is missing.
        {{{0, 1}, {2, 3}, {4, 5}, {}}, {0, 1}, {1, 2}, {{}, {}, {2, 3}, {0, 1}}, {3}, 3},
        {{{0, 1}, {2, 3}, {4, 5}, {}}, {1, 2}, {1, 2}, {{0, 1}, {}, {}, {2, 3}}, {3}},
        // A spare that has too few tasks stays one.
        {{{0, 1, 2}, {3, 4, 5}, {}}, {1}, {1, 1}, {{0, 1, 2}, {}, {}}, {}},
        // With groups of two.
        {{{0, 1}, {2, 3}, {4, 5}}, {1}, {0, 1, 2}, {{0, 1}, {}, {2, 3}}, {}},
    };
    for (const auto& c : cases) {
        const auto world = next_world(nodes_of(c.before, c.lost), settings_of(c.wish), c.broker);
        ASSERT_TRUE(world) << world.error().message;
        EXPECT_EQ(world->ranks, c.after);
        EXPECT_EQ(world->came, c.came);
        size_t before = 0, size = 0;
        for (const auto& ranks : c.before) before += ranks.size();
        for (const auto& ranks : world->ranks) size += ranks.size();
        EXPECT_EQ(world->size, size);
        EXPECT_EQ(world->shrank, size < before);
    }
}

TEST(NextWorld, SaysWhyThereIsNone) {
    const Ranks four = {{0, 1}, {2, 3}, {}};
    const struct {
        Ranks before;
        std::initializer_list<size_t> lost;
        Wish wish;
        const char* why;
    } cases[] = {
        {{{0, 1}, {2, 3}},
         {1},
         {},
         "no other node can take over; --dp-spares or --dp-min-nodes would let the step go on"},
        {four, {1, 2}, {1}, "no spare node is left, and without --dp-min-nodes the world cannot shrink"},
        {four, {1, 2}, {1, 2}, "1 node is left, fewer than --dp-min-nodes=2"},
        {{{0, 1}, {2, 3}, {4, 5}},
         {0},
         {0, 1, 3},
         "the 4 ranks that are left cannot be divided by --dp-tensor=3 times --dp-pipeline=1"},
    };
    for (const auto& c : cases) {
        const auto world = next_world(nodes_of(c.before, c.lost), settings_of(c.wish), 0);
        ASSERT_FALSE(world) << c.why;
        EXPECT_EQ(world.error().message, c.why);
    }
}

// Ranks of a node that nobody knows of are gone.
TEST(NextWorld, ClosesAGapInTheNumbersIfItMay) {
    const auto nodes = nodes_of({{0, 1}, {4, 5}, {}}, {0});
    const auto world = next_world(nodes, settings_of({1, 1}), 2);
    ASSERT_TRUE(world);
    EXPECT_EQ(world->ranks, (Ranks{{}, {2, 3}, {0, 1}}));
    EXPECT_TRUE(world->shrank);
    EXPECT_FALSE(next_world(nodes, settings_of({1}), 2));
}

TEST(NextWorld, GroupsTheRanksOfNodesThatDoNotAnswer) {
    const struct {
        uint32_t size;
        Ranks here;
        size_t lost;
        uint32_t most;
        Ranks groups;
    } cases[] = {
        {4, {{0, 1}, {2, 3}}, 0, 2, {}},
        {6, {{2, 3}, {}}, 2, 2, {{0, 1}, {4, 5}}},
        {6, {{}}, 3, 2, {{0, 1}, {2, 3}, {4, 5}}},
        {6, {{2}}, 2, 4, {{0, 1}, {3, 4, 5}}},
        {4, {{1, 3}}, 1, 2, {{0, 2}}},  // --distribution=cyclic
    };
    for (const auto& c : cases)
        EXPECT_EQ(ranks_of_lost(c.size, nodes_of(c.here, {}), c.lost, c.most), c.groups);
}

}  // namespace
}  // namespace dp
