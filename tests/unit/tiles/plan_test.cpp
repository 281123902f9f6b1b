// SPDX-License-Identifier: Apache-2.0
#include "tiles/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "common/task_environment.hpp"
#include "tiles/conf.hpp"
#include "tiles/cpus.hpp"

namespace dp {
namespace {

TileInventory inventory(const std::string& words) {
    auto read = read_tiles_conf("nodes=n " + words, "tiles.conf", "n");
    EXPECT_TRUE(read && *read) << (read ? "" : read.error().message);
    return **read;
}

std::vector<GresUnits> given(const std::string& detail) {
    return *parse_gres_detail(detail);
}

std::vector<uint32_t> ranks_from(uint32_t first, uint32_t count) {
    std::vector<uint32_t> ranks(count);
    std::iota(ranks.begin(), ranks.end(), first);
    return ranks;
}

std::string value_of(const TilePlan& plan, const std::string& name) {
    for (const auto& variable : plan.variables)
        if (variable.name == name) return variable.value;
    return "(unset)";
}

// What an inner step knows to take away.
bool is_ours_alone(const std::string& name) {
    return std::find(kNamesOfTiles.begin(), kNamesOfTiles.end(), name) != kNamesOfTiles.end();
}

const std::string kFiles = " files=/dev/gpu[0-3]";
const TileInventory kFourGpus = inventory("vendor=nvidia devices=4" + kFiles);
const TileInventory kSn30 = inventory("vendor=sambanova devices=8 tiles-per-device=8 tiles-per-unit=64");
const TileInventory kSn10 = inventory("vendor=sambanova devices=8 tiles-per-device=4 files=/dev/rdu[0-7]");
const TileInventory kDawn = inventory("vendor=intel devices=4 tiles-per-device=2 numa=0,0,1,1");

// A node on which the device cgroup lets these files be opened, and nothing else.
std::function<int(const std::string&)> only(const std::set<std::string>& files) {
    return [files](const std::string& file) { return files.contains(file) ? 0 : EPERM; };
}

TEST(TilePlan, OfTheSeedsSn30) {
    for (uint32_t local = 0; local < 16; ++local) {
        TileFacts facts{&kSn30, given("rdu:1(IDX:0)")};
        facts.local_rank = local;
        facts.ranks = ranks_from(0, 16);
        facts.per_rank = 4;
        const auto plan = plan_tiles(facts);
        ASSERT_TRUE(plan) << plan.error().message;
        EXPECT_EQ(value_of(*plan, "SF_RNT_TILE_AFFINITY"), value_of(*plan, "DP_TILE_MASK"));
        if (local == 3) {
            EXPECT_EQ(value_of(*plan, "DP_TILE_MASK"), "0xf000");
            EXPECT_EQ(value_of(*plan, "DP_TILE_LIST"), "12,13,14,15");
            EXPECT_EQ(value_of(*plan, "DP_TILE_COUNT"), "4");
            EXPECT_EQ(value_of(*plan, "DP_TILE_DEVICE"), "1");
            EXPECT_EQ(value_of(*plan, "DP_TILE_NUMA"), "(unset)");
        }
        EXPECT_FALSE(plan->by_task);
        for (const auto& variable : plan->variables)
            EXPECT_EQ(variable.whose == TaskVariable::Whose::ours, is_ours_alone(variable.name))
                << variable.name;
    }
}

TEST(TilePlan, MoreThanTheStepOwnsIsRefusedWithBothNumbers) {
    TileFacts facts{&kSn10, given("rdu:2(IDX:6-7)")};
    facts.ranks = ranks_from(0, 2);
    facts.per_rank = 4;
    EXPECT_EQ(value_of(*plan_tiles(facts), "DP_TILE_MASK"), "0xf000000");
    facts.per_rank = 5;
    const auto plan = plan_tiles(facts);
    ASSERT_FALSE(plan);
    EXPECT_NE(plan.error().message.find("needs 10 tiles, and the step owns 8 tiles on this node"),
              std::string::npos)
        << plan.error().message;
    facts.given = given("gpu:1(IDX:0)");
    EXPECT_NE(plan_tiles(facts).error().message.find("the job owns no rdu on this node"), std::string::npos);
}

TEST(TilePlan, OfAStepThatOwnsLessThanItsJob) {
    // Of gres gpu Slurm tells it; of others nobody.
    TileFacts gpus{&kFourGpus, given("gpu:4(IDX:0-3)"), "2,3", "0,1", "0,1"};
    gpus.ranks = ranks_from(0, 2);
    gpus.local_rank = 1;
    gpus.open_error = only({"/dev/gpu2", "/dev/gpu3"});
    auto plan = plan_tiles(gpus);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->own, Tiles{3});
    EXPECT_EQ(value_of(*plan, "CUDA_VISIBLE_DEVICES"), "0,1");
    EXPECT_EQ(value_of(*plan, "DP_TILE_DEVICE"), "1");

    TileFacts rdus{&kSn10, given("rdu:4(IDX:4-7)")};
    rdus.ranks = ranks_from(0, 2);
    rdus.step_count = 4;
    ASSERT_TRUE(plan_tiles(rdus));
    rdus.step_count = 2;
    EXPECT_NE(plan_tiles(rdus).error().message.find("this step was given 2 of its job's 4 rdu on this node"),
              std::string::npos);
}

TEST(TilePlan, DevicesInTheOrderOfTheRanks) {
    struct {
        const char* step_units;
        const char* names;
        uint32_t ranks, local, per_rank;
        bool own_only;
        const char* cuda;
        const char* device;
    } const cases[] = {
        {"0,1,2,3", "0,1,2,3", 4, 2, 1, false, "0,1,2,3", "2"},
        {"0,1,2,3", "0,1,2,3", 4, 2, 1, true, "2", "0"},
        {"2,3", "0,1", 2, 1, 1, false, "0,1", "1"},  // in a device cgroup
        {"2,3", "2,3", 2, 1, 1, false, "2,3", "1"},  // without
        {"0,1,2,3", "0,1,2,3", 2, 1, 2, false, "0,2,1,3", "1"},
        {"0,1,2,3", "0,1,2,3", 2, 1, 0, true, "2,3", "0"},
        {"0,1,2,3", "0,1,2,3", 3, 2, 1, false, "0,1,2", "2"},
        {"0,1", "MIG-a,MIG-b", 2, 1, 1, false, "MIG-b", "0"},
    };
    for (const auto& c : cases) {
        TileFacts facts{&kFourGpus, {}, c.step_units, c.names, c.names};
        facts.ranks = ranks_from(0, c.ranks);
        facts.local_rank = c.local;
        facts.per_rank = c.per_rank;
        facts.own_only = c.own_only;
        const auto plan = plan_tiles(facts);
        ASSERT_TRUE(plan) << plan.error().message;
        EXPECT_EQ(value_of(*plan, "CUDA_VISIBLE_DEVICES"), c.cuda) << c.names;
        EXPECT_EQ(value_of(*plan, "DP_TILE_DEVICE"), c.device) << c.names;
        EXPECT_EQ(value_of(*plan, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
    }
}

TEST(TilePlan, WhereSlurmHasBoundEachTask) {
    // --gpus-per-task=1 with ConstrainDevices: each task calls its own 0.
    TileFacts facts{&kFourGpus, {}, "0,1,2", "0,1,2", "0"};
    facts.ranks = ranks_from(4, 3);
    facts.local_rank = 1;
    facts.open_error = only({"/dev/gpu2"});
    auto plan = plan_tiles(facts);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->own, Tiles{2});
    EXPECT_TRUE(plan->by_task);
    EXPECT_EQ(value_of(*plan, "CUDA_VISIBLE_DEVICES"), "0");
    EXPECT_EQ(value_of(*plan, "DP_TILE_MASK"), "0x4");
    // Without the cgroup Slurm names it by its number.
    facts.open_error = [](const std::string&) { return 0; };
    facts.task_names = "1";
    plan = plan_tiles(facts);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->own, Tiles{1});
    EXPECT_EQ(value_of(*plan, "CUDA_VISIBLE_DEVICES"), "1");
    // More than it was bound to.
    facts.per_rank = 2;
    EXPECT_NE(plan_tiles(facts).error().message.find("to 1 tile"), std::string::npos);
    // Nobody knows the files, so nobody knows which it is.
    const TileInventory unknown = inventory("vendor=nvidia devices=4");
    facts.inventory = &unknown;
    facts.per_rank = 1;
    EXPECT_NE(plan_tiles(facts).error().message.find("Slurm has bound rank 5 to the gpu that it calls \"1\""),
              std::string::npos);
}

TEST(TilePlan, WhereSlurmGivesTwoTasksTheSameThereIsNone) {
    TileFacts facts{&kFourGpus, {}, "0,1", "0,1", "0"};
    facts.ranks = ranks_from(0, 4);
    facts.open_error = only({"/dev/gpu0"});
    for (const char* binding :
         {"gpu:single:2", "gpu:map_gpu:0,0", "gpu:mask_gpu:0x3,0x1", "gpu:single:1", "gpu:closest",
          "gpu:verbose,map_gpu:0,0", "gres/gpu:single:2", "gres/x:1;gres/gpu:map_gpu:0,0"}) {
        facts.gpu_binding = binding;
        const auto plan = plan_tiles(facts);
        ASSERT_FALSE(plan) << binding;
        EXPECT_NE(plan.error().message.find("leave out --gpu-bind"), std::string::npos)
            << plan.error().message;
    }
}

// Where GPUs run out Slurm binds a task to the first of the step, which another task has.
TEST(TilePlan, WhereSlurmRunsOutOfGpusForItsTasksThereIsNone) {
    struct Case {
        const char *units, *task_names, *binding;
        uint32_t ranks;
        bool enough;
    } const cases[] = {
        {"0,1", "0", "gpu:per_task:1", 4, false},
        {"0,1", "0", "gpu:verbose,per_task:1", 4, false},
        {"0,1", "0,1", "gpu:per_task:2", 2, false},
        {"0,1,2,3", "0", "gpu:per_task:2", 3, false},
        {"0", "0", "gpu:per_task:1", 2, false},
        {"0", "0", "gres/gpu:per_task:1", 2, false},
        {"0,1", "0", "", 4, false},
        {"0,1", "0", "gpu:per_task:x", 2, false},
        {"0,1", "0", "gpu:per_task:0", 4, false},
        {"0,1", "0", "gpu:per_task:18446744073709551615", 2, false},
        {"0,1", "0", "gpu:per_task:1", 2, true},
        {"0,1,2,3", "0,1", "gpu:per_task:2", 2, true},
        {"0", "0", "gpu:per_task:1", 1, true},
        {"0,1,2", "0", "gpu:single:1", 3, true},
    };
    for (const auto& c : cases) {
        TileFacts facts{&kFourGpus, {}, c.units, c.units, c.task_names, c.binding};
        facts.ranks = ranks_from(0, c.ranks);
        facts.per_rank = 1;
        const auto plan = plan_tiles(facts);
        ASSERT_EQ(plan.has_value(), c.enough)
            << c.ranks << " ranks, " << c.binding << (plan ? "" : plan.error().message);
        if (!plan) {
            EXPECT_NE(plan.error().message.find("--gpu-bind=none"), std::string::npos);
        }
    }
}

// Slurm sets no CUDA_VISIBLE_DEVICES then; the device cgroup is the step's.
TEST(TilePlan, WhereTheUserWantsNoBindingTheStepsAreSharedOut) {
    TileFacts facts{&kFourGpus, {}, "1,3", "0,1", ""};
    facts.ranks = ranks_from(0, 2);
    facts.local_rank = 1;
    facts.open_error = only({"/dev/gpu1", "/dev/gpu3"});
    for (const char* binding : {"gpu:none", "gpu:verbose,none", "gres/gpu:none"}) {
        facts.gpu_binding = binding;
        const auto plan = plan_tiles(facts);
        ASSERT_TRUE(plan) << binding << ": " << plan.error().message;
        EXPECT_EQ(plan->own, Tiles{3});
        EXPECT_FALSE(plan->by_task);
        EXPECT_EQ(value_of(*plan, "CUDA_VISIBLE_DEVICES"), "0,1");
        EXPECT_EQ(value_of(*plan, "DP_TILE_DEVICE"), "1");
    }
}

TEST(TilePlan, ATaskThatSlurmBoundCallsItsOwnAsTheStepDoes) {
    // --gpus-per-task=2, one rank; and the second of two, whose names are those of the step's first two.
    TileFacts facts{&kFourGpus, {}, "2,3", "0,1", "0,1", "gpu:per_task:2"};
    facts.ranks = ranks_from(0, 1);
    facts.open_error = only({"/dev/gpu2", "/dev/gpu3"});
    EXPECT_EQ(plan_tiles(facts)->own, (Tiles{2, 3}));
    facts.step_units = facts.step_names = "0,1,2,3";
    facts.ranks = ranks_from(0, 2);
    facts.local_rank = 1;
    facts.per_rank = 1;
    const auto plan = plan_tiles(facts);
    EXPECT_EQ(plan->own, Tiles{2});
    EXPECT_EQ(value_of(*plan, "CUDA_VISIBLE_DEVICES"), "0");
}

TEST(TilePlan, DevicesAreListedAlsoWhereSlurmCountsSomethingElse) {
    const TileInventory quarters = inventory("vendor=nvidia devices=4 tiles-per-device=16 gres=tile");
    TileFacts facts{&quarters, given("tile:32(IDX:0-31)")};
    facts.ranks = ranks_from(0, 2);
    facts.local_rank = 1;
    facts.per_rank = 16;
    EXPECT_EQ(value_of(*plan_tiles(facts), "CUDA_VISIBLE_DEVICES"), "0,1");
    EXPECT_EQ(value_of(*plan_tiles(facts), "DP_TILE_DEVICE"), "1");
    const TileInventory pairs = inventory("vendor=amd devices=8 gres=pair tiles-per-unit=2");
    facts.inventory = &pairs;
    facts.given = given("pair:2(IDX:0,2)");
    facts.per_rank = 2;
    EXPECT_EQ(value_of(*plan_tiles(facts), "ROCR_VISIBLE_DEVICES"), "0,4,1,5");
    EXPECT_EQ(value_of(*plan_tiles(facts), "DP_TILE_DEVICE"), "1");
}

TEST(TilePlan, OfDawnWithTwoStacksARankNumberLocalRankIsItsOwn) {
    for (uint32_t local = 0; local < 4; ++local) {
        TileFacts facts{&kDawn, {}, "0,1,2,3", "0,1,2,3", "0,1,2,3"};
        facts.ranks = ranks_from(0, 4);
        facts.local_rank = local;
        const auto plan = plan_tiles(facts);
        const auto numbers = parse_tiles(value_of(*plan, "ZE_AFFINITY_MASK"));
        ASSERT_EQ(numbers.size(), 5u);
        EXPECT_EQ(numbers[local], plan->own.front());
        EXPECT_EQ(value_of(*plan, "DP_TILE_DEVICE"), std::to_string(local));
    }
}

TEST(TilePlan, OfDawnInBothHierarchies) {
    for (uint32_t local = 0; local < 8; ++local) {
        TileFacts facts{&kDawn, {}, "0,1,2,3", "0,1,2,3", "0,1,2,3"};
        facts.ranks = ranks_from(0, 8);
        facts.local_rank = local;
        facts.own_only = true;
        auto plan = plan_tiles(facts);
        ASSERT_TRUE(plan) << plan.error().message;
        EXPECT_EQ(value_of(*plan, "ZE_AFFINITY_MASK"), std::to_string(local));
        EXPECT_EQ(value_of(*plan, "ZE_FLAT_DEVICE_HIERARCHY"), "FLAT");
        EXPECT_EQ(value_of(*plan, "ZE_ENABLE_PCI_ID_DEVICE_ORDER"), "1");
        EXPECT_EQ(value_of(*plan, "DP_TILE_NUMA"), local < 4 ? "0" : "1");
        facts.get = [](const char* name) {
            return std::string(name) == "ZE_FLAT_DEVICE_HIERARCHY" ? std::optional<std::string>("COMPOSITE")
                                                                   : std::nullopt;
        };
        plan = plan_tiles(facts);
        EXPECT_EQ(value_of(*plan, "ZE_AFFINITY_MASK"),
                  std::to_string(local / 2) + "." + std::to_string(local % 2));
        facts.own_only = false;
        plan = plan_tiles(facts);
        EXPECT_EQ(value_of(*plan, "ZE_AFFINITY_MASK"), "0.0,0.1,1.0,1.1,2.0,2.1,3.0,3.1");
        EXPECT_EQ(value_of(*plan, "DP_TILE_DEVICE"), std::to_string(local / 2));
        facts.get = [](const char*) { return std::nullopt; };
        plan = plan_tiles(facts);
        EXPECT_EQ(value_of(*plan, "ZE_AFFINITY_MASK"), "0,1,2,3,4,5,6,7");
        EXPECT_EQ(value_of(*plan, "DP_TILE_DEVICE"), std::to_string(local));
    }
}

TEST(TilePlan, AmdCountsTwice) {
    const TileInventory amd = inventory("vendor=amd devices=8");
    TileFacts facts{&amd, {}, "4,5,6,7", "4,5,6,7", "4,5,6,7"};
    facts.ranks = ranks_from(0, 4);
    facts.local_rank = 2;
    auto plan = plan_tiles(facts);
    EXPECT_EQ(value_of(*plan, "ROCR_VISIBLE_DEVICES"), "4,5,6,7");
    EXPECT_EQ(value_of(*plan, "HIP_VISIBLE_DEVICES"), "0,1,2,3");
    facts.own_only = true;
    plan = plan_tiles(facts);
    EXPECT_EQ(value_of(*plan, "ROCR_VISIBLE_DEVICES"), "6");
    EXPECT_EQ(value_of(*plan, "HIP_VISIBLE_DEVICES"), "0");
}

TEST(TilePlan, AGpuThatIsSharedAsTilesIsListedOnce) {
    const TileInventory shared = inventory("vendor=nvidia devices=2 tiles-per-device=4");
    TileFacts facts{&shared, {}, "0,1", "0,1", "0,1"};
    facts.ranks = ranks_from(0, 8);
    facts.local_rank = 5;
    const auto plan = plan_tiles(facts);
    EXPECT_EQ(value_of(*plan, "CUDA_VISIBLE_DEVICES"), "0,1");
    EXPECT_EQ(value_of(*plan, "DP_TILE_DEVICE"), "1");
    EXPECT_EQ(value_of(*plan, "DP_TILE_MASK"), "0x20");
}

TEST(TilePlan, ADeviceThatTheRankMayNotOpenIsNamed) {
    TileFacts facts{&kFourGpus, {}, "0,1,2,3", "0,1,2,3", "0,1,2,3"};
    facts.ranks = ranks_from(4, 4);
    const std::pair<int, const char*> cases[] = {
        {EACCES,
         "rank 6 may not open /dev/gpu2, its device 2: Permission denied; give the job's users access"},
        {EPERM, "Operation not permitted; Slurm's device cgroup"},
        {ENOENT, "correct files= in tiles.conf (tiles.conf line 1)"},
    };
    for (const auto& [error, text] : cases) {
        facts.open_error = [&, e = error](const std::string& file) { return file == "/dev/gpu2" ? e : 0; };
        const auto plan = plan_tiles(facts);
        ASSERT_FALSE(plan);
        EXPECT_NE(plan.error().message.find(text), std::string::npos) << plan.error().message;
    }
}

TEST(TileCpus, NearTheTilesAndSharedOutEvenly) {
    const Cpus all = {0, 1, 2, 3, 4, 5, 6, 7};
    const Cpus low = {0, 1, 2, 3};
    const Cpus high = {4, 5, 6, 7};
    struct {
        Cpus allowed;
        std::vector<Cpus> near;
        uint32_t local;
        bool shared;
        Cpus mine;
    } const cases[] = {
        {all, {low, low, high, high}, 0, true, {0, 1}},
        {all, {low, low, high, high}, 1, true, {2, 3}},
        {all, {low, low, high, high}, 3, true, {6, 7}},
        {all, {low, low, low}, 2, true, {2}},                 // 3 is left over
        {all, {low, low, low, low, low, low}, 5, true, {1}},  // fewer cores than ranks
        {{0, 1, 4}, {low, high}, 1, true, {4}},
        {{0, 1}, {low, high}, 1, true, {}},                  // none is near: Slurm's binding stays
        {{2, 3}, {low, low}, 1, false, {2, 3}},              // Slurm has bound it there
        {{1, 2, 5, 6}, {low, low, high}, 2, false, {5, 6}},  // and across: only what is near
        {all, {{}, {}}, 0, true, {}},                        // nothing known
        // The second one's tiles are near both.
        {all, {low, all, high}, 0, true, {0, 1}},
        {all, {low, all, high}, 1, true, {2, 3, 4, 5}},
        {all, {low, all, high}, 2, true, {6, 7}},
    };
    for (const auto& c : cases) {
        const CpuFacts facts{c.allowed, c.near, c.local, c.shared};
        EXPECT_EQ(cpus_of_rank(facts), c.mine) << "local rank " << c.local << " of " << c.near.size();
    }
}

// Whatever each is near: as long as no CPUs are near more ranks than they are.
TEST(TileCpus, OfTwoRanksNeverOverlap) {
    std::mt19937 random(7);
    auto draw = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
    for (int round = 0; round < 2000; ++round) {
        CpuFacts facts;
        facts.shared = true;
        const uint32_t ranks = 1 + draw(8);
        const uint32_t numas = 1 + draw(4);
        const uint32_t of_numa = ranks + draw(5);
        for (uint32_t cpu = 0; cpu < numas * of_numa; ++cpu) facts.allowed.push_back(cpu);
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            Cpus near;
            const uint32_t some = 1 + draw((1u << numas) - 1);
            for (uint32_t cpu : facts.allowed)
                if (some >> (cpu / of_numa) & 1) near.push_back(cpu);
            facts.near.push_back(near);
        }
        std::set<uint32_t> taken;
        for (facts.local_rank = 0; facts.local_rank < ranks; ++facts.local_rank) {
            const Cpus mine = cpus_of_rank(facts);
            EXPECT_FALSE(mine.empty());
            for (uint32_t cpu : mine) {
                EXPECT_TRUE(taken.insert(cpu).second) << "CPU " << cpu << " twice in round " << round;
                const Cpus& near = facts.near[facts.local_rank];
                EXPECT_TRUE(std::binary_search(near.begin(), near.end(), cpu));
            }
        }
    }
}

TEST(TileCpus, HardwareThreadsOfACoreStayTogether) {
    const Cpus near = {0, 1, 2, 3, 16, 17, 18, 19};
    CpuFacts facts{near, {near, near}, 1, true, [](uint32_t cpu) { return cpu % 16; }};
    EXPECT_EQ(cpus_of_rank(facts), (Cpus{2, 3, 18, 19}));
}

TEST(TileCpus, NearAreTheDevicesOwnOrTheirNumaNodes) {
    auto of_numa = [](uint32_t numa) { return numa == 0 ? Cpus{0, 1} : Cpus{2, 3}; };
    EXPECT_EQ(cpus_near(kDawn, {0, 1}, of_numa), (Cpus{0, 1}));
    EXPECT_EQ(cpus_near(kDawn, {3, 4}, of_numa), (Cpus{0, 1, 2, 3}));
    EXPECT_EQ(cpus_near(kSn30, {0}, of_numa), Cpus());
    const TileInventory own = inventory("vendor=amd devices=2 numa=0,1 cpus=8,9/10-11");
    EXPECT_EQ(cpus_near(own, {1}, of_numa), (Cpus{10, 11}));
    EXPECT_TRUE(kDawn.says_where());
    EXPECT_TRUE(inventory("vendor=amd devices=2 cpus=8,9/10-11").says_where());
    EXPECT_FALSE(kSn30.says_where());
}

}  // namespace
}  // namespace dp
