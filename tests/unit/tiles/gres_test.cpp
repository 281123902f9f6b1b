// SPDX-License-Identifier: Apache-2.0
#include "tiles/gres.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

using Indices = std::vector<uint32_t>;

TEST(Gres, IsReadAsSlurmWritesIt) {
    struct {
        const char* text;
        std::vector<GresUnits> given;
    } const cases[] = {
        {"", {}},
        {"gpu:2(IDX:0-1)", {{"gpu", "", 2, Indices{0, 1}}}},
        {"gpu:a100:3(IDX:0,2-3)", {{"gpu", "a100", 3, Indices{0, 2, 3}}}},
        {"gpu:a100:1(IDX:0),gpu:h100:1(IDX:4),rdu:2(IDX:6-7)",
         {{"gpu", "a100", 1, Indices{0}}, {"gpu", "h100", 1, Indices{4}}, {"rdu", "", 2, Indices{6, 7}}}},
        {"rdu_tile:4(IDX:8-11)", {{"rdu_tile", "", 4, Indices{8, 9, 10, 11}}}},
        // A type of MIG has points and more; without File= in gres.conf there are counts only.
        {"gpu:1g.10gb:1(IDX:5)", {{"gpu", "1g.10gb", 1, Indices{5}}}},
        {"rdu(CNT:1)", {{"rdu", "", 1, std::nullopt}}},
        {"tile:sn30:64(IDX:0-63),license(CNT:2)",
         {{"tile", "sn30", 64,
           [] {
               Indices all(64);
               for (uint32_t i = 0; i < 64; ++i) all[i] = i;
               return all;
           }()},
          {"license", "", 2, std::nullopt}}},
        // Several shares of one GPU.
        {"shard:8(IDX:0)", {{"shard", "", 8, Indices{0}}}},
        {"gpu:0(IDX:N/A)", {{"gpu", "", 0, Indices{}}}},
    };
    for (const auto& c : cases) {
        const auto given = parse_gres_detail(c.text);
        ASSERT_TRUE(given) << c.text << ": " << given.error().message;
        EXPECT_EQ(*given, c.given) << c.text;
        EXPECT_EQ(gres_detail(*given), c.text);
    }
}

TEST(Gres, WhatHasNoIndicesIsOnlyCounted) {
    const auto given = parse_gres_detail("shard:2(1/4,1/4),gpu:0(IDX:),gpu:1(IDX:1)");
    ASSERT_TRUE(given) << given.error().message;
    const std::vector<GresUnits> expected = {
        {"shard", "", 2, std::nullopt}, {"gpu", "", 0, Indices{}}, {"gpu", "", 1, Indices{1}}};
    EXPECT_EQ(*given, expected);
}

TEST(Gres, WhatSlurmDoesNotWriteIsRefusedWithTheReason) {
    const std::pair<const char*, const char*> cases[] = {
        {"gpu", "neither (IDX:...) nor (CNT:...)"},
        {"gpu:2", "neither (IDX:...) nor (CNT:...)"},
        {"gpu:2(IDX:0-1", "neither (IDX:...) nor (CNT:...)"},
        {"gpu:2()", "neither IDX: nor CNT:"},
        {"gpu:2(S:0-1)", "neither IDX: nor CNT:"},
        {"gpu,rdu(CNT:1)", "neither (IDX:...) nor (CNT:...)"},
        {"gpu(IDX:0)", "no count"},
        {"gpu:x(IDX:0)", "no count"},
        {":2(IDX:0)", "the name is missing"},
        {"(CNT:1)", "the name is missing"},
        {"gpu(CNT:)", "not a number"},
        {"gpu(CNT:-1)", "not a number"},
        {"a:1(IDX:0-65535),b:1(IDX:0)", "more than 65536 indices"},
        {"gpu:1(IDX:a)", "neither an index nor a range"},
        {"gpu:1(IDX:0,)", "neither an index nor a range"},
        {"gpu:2(IDX:1-0)", "neither an index nor a range"},
        {"gpu:2(IDX:1,0)", "do not ascend"},
        {"gpu:2(IDX:0,0)", "do not ascend"},
        {"gpu:2(IDX:0-4294967295)", "over 65535"},
        {"gpu:2(IDX:0-99999999999)", "neither an index nor a range"},
        {"gpu:1(IDX:0);rdu:1(IDX:0)", "a comma"},
        {"gpu:1(IDX:0),", "a comma"},
    };
    for (const auto& [text, why] : cases) {
        const auto given = parse_gres_detail(text);
        ASSERT_FALSE(given) << text;
        EXPECT_NE(given.error().message.find(why), std::string::npos)
            << text << ": " << given.error().message;
    }
}

TEST(Gres, OfAJobIsSentToItsNodes) {
    const std::vector<std::pair<std::string, std::string>> nodes = {{"gpu01", "gpu:4(IDX:0-3),rdu:1(IDX:0)"},
                                                                    {"gpu02", "gpu:4(IDX:0-3),rdu:1(IDX:0)"},
                                                                    {"gpu03", ""},
                                                                    {"x", "gpu:2(IDX:1,3)"}};
    const std::string text = write_job_gres(nodes);
    EXPECT_EQ(text, "gpu[01-02]=gpu:4(IDX:0-3),rdu:1(IDX:0);x=gpu:2(IDX:1,3)");
    for (const auto& [node, detail] : nodes) EXPECT_EQ(gres_of_node(text, node), detail);
    EXPECT_EQ(gres_of_node("", "gpu01"), "");
    EXPECT_FALSE(gres_of_node("gpu[01", "gpu01"));
}

TEST(Gres, ThatAStepWasGiven) {
    const struct {
        const char* step;
        const char* gres;
        uint64_t units;
    } cases[] = {{"gres:rdu:2|", "rdu", 2},
                 {"gres/rdu:2|", "rdu", 2},
                 {"cpu:2,gres:gpu:a100:1,gres:gpu:h100:3,gres:rdu|", "gpu", 4},
                 {"cpu:2,gres:gpu:a100:1,gres:rdu|", "rdu", 1},
                 {"gres:gpu:a100|", "gpu", 1},
                 {"gres:rdu_tile:4|", "rdu", 0},
                 {"cpu=2,gres/rdu=2,gres/gpu:a100=1|", "rdu", 2},
                 {"cpu=2,gres/rdu=2,gres/gpu:a100=1|", "gpu", 1},
                 {"gres:gpu:4,gres:tile:8|", "tile", 8},
                 {"|", "tile", 0},  // by --gpus, or by --gres=none
                 {"", "tile", 0},
                 {"gres:gpu:1|", "tile", 0},
                 {"|cpu=2,gres/tile=4", "tile", 12},
                 {"gres/tile:2|gres/tile:4", "tile", 14}};
    for (const auto& c : cases)
        EXPECT_EQ(units_of_step(c.step, c.gres, 3), c.units) << c.step << " " << c.gres;
}

TEST(Gres, ThatANodeHas) {
    EXPECT_EQ(configured_units("gpu:a100:4(S:0,1),gpu:h100:2(S:1),rdu:8", "gpu"), 6u);
    EXPECT_EQ(configured_units("gpu:4(S:0-1),rdu:8,rdu_tile:64", "rdu"), 8u);
    EXPECT_EQ(configured_units("gpu", "gpu"), 1u);
    EXPECT_EQ(configured_units("(null)", "gpu"), 0u);
    EXPECT_EQ(configured_units("", "gpu"), 0u);
}

}  // namespace
}  // namespace dp
