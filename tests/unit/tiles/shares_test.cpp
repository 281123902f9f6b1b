// SPDX-License-Identifier: Apache-2.0
#include "tiles/shares.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace dp {
namespace {

Tiles range(uint32_t first, uint32_t last) {
    Tiles out;
    for (uint32_t tile = first; tile <= last; ++tile) out.push_back(tile);
    return out;
}

Tiles operator+(Tiles a, const Tiles& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

TEST(OwnedTiles, AreTheUnitsThatSlurmGave) {
    const TileLayout sn30{"rdu", 8, 8, 64};
    const TileLayout whole_sn30{"rdu", 64, 8, 64};
    const TileLayout rdu_tiles{"rdu_tile", 1, 8, 64};
    const TileLayout gpus{"gpu", 1, 1, 4};
    const TileLayout dawn{"gpu", 2, 2, 8};
    struct {
        const char* given;
        TileLayout layout;
        Tiles owned;
    } const cases[] = {
        {"rdu:2(IDX:6-7)", {"rdu", 4, 4, 32}, range(24, 31)},  // SN10: RDUs 6 and 7 are 0xff000000
        {"rdu:1(IDX:0)", whole_sn30, range(0, 63)},            // the seed's rdu:1
        {"rdu:2(IDX:0,7)", sn30, range(0, 7) + range(56, 63)},
        {"rdu_tile:4(IDX:8-11)", rdu_tiles, range(8, 11)},
        {"rdu_tile:4(IDX:8-11),gpu:1(IDX:0)", rdu_tiles, range(8, 11)},
        {"gpu:a100:1(IDX:0),gpu:h100:2(IDX:2-3)", gpus, {0, 2, 3}},
        {"gpu:2(IDX:1,3)", dawn, {2, 3, 6, 7}},
        {"gpu:0(IDX:N/A)", gpus, {}},
        {"rdu:1(IDX:0)", gpus, {}},
        {"", gpus, {}},
    };
    for (const auto& c : cases) {
        const auto owned = owned_tiles(*parse_gres_detail(c.given), c.layout);
        ASSERT_TRUE(owned) << c.given << ": " << owned.error().message;
        EXPECT_EQ(*owned, c.owned) << c.given;
    }
}

TEST(OwnedTiles, AreNeverGuessed) {
    const TileLayout gpus{"gpu", 1, 1, 4};
    const std::pair<const char*, const char*> cases[] = {
        {"gpu(CNT:2)", "only counts the gres gpu of this node"},
        {"gpu:8(IDX:0)", "fewer units than it has given of the gres gpu:8(IDX:0)"},
        {"gpu:1(IDX:4)", "Slurm has given gpu 4, but the node's 4 tiles make only 4 units"},
        {"gpu:1(IDX:0),gpu:1(IDX:0)", "twice"},
    };
    for (const auto& [given, why] : cases) {
        const auto owned = owned_tiles(*parse_gres_detail(given), gpus);
        ASSERT_FALSE(owned) << given;
        EXPECT_NE(owned.error().message.find(why), std::string::npos) << owned.error().message;
    }
}

TEST(TileShares, AreAsTheSeedsWantThem) {
    // SN30: 16 ranks with 4 of 64 tiles each; local rank 3 has 0xf000, and together it is all of them.
    const auto sn30 = share_tiles(range(0, 63), 8, 16, 4);
    ASSERT_TRUE(sn30);
    EXPECT_EQ(tile_mask((*sn30)[3]), "0xf000");
    Tiles all;
    for (const Tiles& one : *sn30) all = all + one;
    EXPECT_EQ(tile_mask(all), "0xffffffffffffffff");
    // SN10: what a job with RDUs 6 and 7 gets lies inside of 0xff000000.
    const auto sn10 = share_tiles(range(24, 31), 4, 2, 0);
    ASSERT_TRUE(sn10);
    EXPECT_EQ(tile_mask((*sn10)[0]), "0xf000000");
    EXPECT_EQ(tile_mask((*sn10)[1]), "0xf0000000");
    // DAWN: four devices of two stacks, eight ranks.
    const auto dawn = share_tiles(range(0, 7), 2, 8, 1);
    ASSERT_TRUE(dawn);
    EXPECT_EQ((*dawn)[5], Tiles{5});
    // More than 64.
    EXPECT_EQ(tile_mask(range(68, 71)), "0xf00000000000000000");
    EXPECT_EQ(tile_mask({}), "0x0");
}

TEST(TileShares, LieInOneDeviceWhereThatCanBe) {
    struct {
        Tiles owned;
        uint32_t per_device, ranks, per_rank;
        std::vector<Tiles> shares;
    } const cases[] = {
        // A tile is missing of the first device: the neighbours there are too few for the second rank.
        {range(1, 7), 4, 2, 2, {{1, 2}, {4, 5}}},
        {range(1, 7), 4, 3, 2, {{1, 2}, {4, 5}, {6, 7}}},
        // Nobody has three left in one device but the first two ranks.
        {range(0, 8), 4, 3, 3, {{0, 1, 2}, {4, 5, 6}, {3, 7, 8}}},
        // Whole devices for ranks that need more than one.
        {range(0, 31), 8, 2, 12, {range(0, 11), range(12, 15) + range(16, 23)}},
        {range(0, 15), 4, 2, 0, {range(0, 7), range(8, 15)}},
        {range(0, 3), 4, 0, 1, {}},
    };
    for (const auto& c : cases) {
        const auto shares = share_tiles(c.owned, c.per_device, c.ranks, c.per_rank);
        ASSERT_TRUE(shares);
        EXPECT_EQ(*shares, c.shares);
    }
}

TEST(TileShares, ThatCannotBeAreRefusedWithBothNumbers) {
    struct {
        size_t owned;
        uint32_t ranks, per_rank;
        const char* why;
    } const cases[] = {
        {8, 4, 4, "--dp-tiles=4 for 4 ranks needs 16 tiles, and the step owns 8 tiles on this node"},
        {0, 4, 1, "--dp-tiles=1 for 4 ranks needs 4 tiles, and the step owns 0 tiles on this node"},
        {1, 1, 65, "--dp-tiles=65 for 1 rank needs 65 tiles, and the step owns 1 tile on this node"},
        {8, 3, 0, "8 tiles on this node, which do not divide evenly among 3 ranks; give --dp-tiles=2"},
        {2, 3, 0, "2 tiles on this node, which do not divide evenly among 3 ranks; ask for more"},
        {0, 3, 0, "0 tiles on this node, which do not divide evenly among 3 ranks; ask for more"},
    };
    for (const auto& c : cases) {
        const auto shares = share_tiles(c.owned ? range(0, static_cast<uint32_t>(c.owned - 1)) : Tiles{}, 8,
                                        c.ranks, c.per_rank);
        ASSERT_FALSE(shares);
        EXPECT_NE(shares.error().message.find(c.why), std::string::npos) << shares.error().message;
    }
}

// Whatever the step owns: no tile is shared or foreign, and no way of sharing has more ranks in one device.
TEST(TileShares, NeverOverlapNorLeaveTheAllocationAndUseFewDevices) {
    std::mt19937 random(20261122);
    for (int round = 0; round < 20000; ++round) {
        const uint32_t per_device = 1 + random() % 8;
        const uint32_t devices = 1 + random() % 8;
        Tiles owned;
        for (uint32_t tile = 0; tile < per_device * devices; ++tile)
            if (random() % 4 != 0) owned.push_back(tile);
        if (owned.empty()) continue;
        const auto most = static_cast<uint32_t>(owned.size());
        const uint32_t per_rank = 1 + random() % std::min(most, 2 * per_device);
        const uint32_t ranks = 1 + random() % (most / per_rank);

        const auto shares = share_tiles(owned, per_device, ranks, per_rank);
        ASSERT_TRUE(shares) << shares.error().message;
        ASSERT_EQ(shares->size(), ranks);
        std::set<uint32_t> seen;
        uint32_t in_one_device = 0;
        for (const Tiles& share : *shares) {
            ASSERT_EQ(share.size(), per_rank);
            ASSERT_TRUE(std::is_sorted(share.begin(), share.end()));
            for (uint32_t tile : share) {
                ASSERT_TRUE(std::binary_search(owned.begin(), owned.end(), tile));
                ASSERT_TRUE(seen.insert(tile).second) << "tile " << tile << " twice";
            }
            in_one_device += share.front() / per_device == share.back() / per_device;
        }
        std::map<uint32_t, uint32_t> owned_of;
        for (uint32_t tile : owned) ++owned_of[tile / per_device];
        uint32_t can = 0;
        for (const auto& [device, count] : owned_of) can += count / per_rank;
        EXPECT_EQ(in_one_device, std::min(can, ranks));
    }
}

TEST(TileTexts, AreReadOrNot) {
    EXPECT_EQ(parse_tiles("12-15,20"), (Tiles{12, 13, 14, 15, 20}));
    EXPECT_EQ(parse_tiles("0-4095").size(), 4096u);
    for (const char* text : {"", "a", "1-", "-1", "3-1", "1,,2", "0-4096", "0-4294967295", "1-2-3",
                             "0-4095,7", "9,0", "4096", "4294967295"})
        EXPECT_TRUE(parse_tiles(text).empty()) << text;
}

}  // namespace
}  // namespace dp
