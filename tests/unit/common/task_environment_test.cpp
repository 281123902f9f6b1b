// SPDX-License-Identifier: Apache-2.0
#include "common/task_environment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/hostfile.hpp"
#include "libdp/world.hpp"
#include "some_task.hpp"

namespace dp {
namespace {

TEST(TaskEnvironment, HasTheFieldsNames) {
    auto [env, warnings] = task_with({});
    const Variables expected = {
        {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29000"},  {"WORLD_SIZE", "8"}, {"RANK", "5"},
        {"LOCAL_RANK", "1"},         {"LOCAL_WORLD_SIZE", "4"}, {"NODE_RANK", "1"},  {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"}};
    for (const auto& [name, value] : expected) EXPECT_EQ(env[name], value) << name;
    EXPECT_TRUE(warnings.empty());
    ASSERT_EQ(expected.size(), kNamesOfWorld.size());
    for (std::string_view name : kNamesOfWorld) EXPECT_TRUE(expected.contains(std::string(name))) << name;
}

TEST(TaskEnvironment, IsWhatLibdpReads) {
    const Variables env = task_with({}).first;
    auto world = world_from_environment([&](const char* name) -> std::optional<std::string> {
        auto found = env.find(name);
        return found == env.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
    ASSERT_TRUE(world) << world.error().message;
    EXPECT_EQ(world->socket, "slurm-dp/1.0/abc");
    EXPECT_EQ(world->rank, 5u);
    EXPECT_EQ(world->size, 8u);
    EXPECT_EQ(world->generation, 3u);
    EXPECT_EQ(world->node_addr, "10.0.0.2");
    EXPECT_EQ(world->timeout, std::chrono::seconds(60));
}

// Slurm runs a task's epilog with it.
TEST(TaskEnvironment, ANodesPartHasNothingOfATaskOrThePlan) {
    Variables env;
    change(env, node_variables(rank_5_of_8(), reading(env)));
    EXPECT_EQ(env, (Variables{{"WORLD_SIZE", "8"},
                              {"LOCAL_WORLD_SIZE", "4"},
                              {"NODE_RANK", "1"},
                              {"GROUP_RANK", "1"},
                              {"GROUP_WORLD_SIZE", "2"},
                              {"DP_WORLD_SIZE", "8"},
                              {"DP_LOCAL_WORLD_SIZE", "4"},
                              {"DP_NODE_RANK", "1"},
                              {"DP_NODES", "2"},
                              {"DP_GENERATION", "3"}}));
    env = {{"WORLD_SIZE", "the user's"}};
    change(env, node_variables(rank_5_of_8(), reading(env)));
    EXPECT_EQ(env["WORLD_SIZE"], "the user's");
    EXPECT_EQ(env["DP_WORLD_SIZE"], "8");
}

TEST(TaskEnvironment, KeepsWhatTheUserSetForTheWorldAndSaysSoWhereItDiffers) {
    auto [env, warnings] = task_with({{"MASTER_ADDR", "head"}, {"WORLD_SIZE", "8"}});
    EXPECT_EQ(env["MASTER_ADDR"], "head");
    EXPECT_EQ(env["DP_MASTER_ADDR"], "10.0.0.1");
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("MASTER_ADDR=head"), std::string::npos);
}

TEST(TaskEnvironment, AnEmptyVariableCountsAsMissing) {
    EXPECT_EQ(task_with({{"MASTER_ADDR", ""}}).first["MASTER_ADDR"], "10.0.0.1");
}

TEST(TaskEnvironment, APerTaskNameIsAlwaysOurs) {
    auto [env, warnings] = task_with({{"NODE_RANK", "0"}, {"RANK", "0"}});
    EXPECT_EQ(env["NODE_RANK"], "1");
    EXPECT_EQ(env["RANK"], "5");
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("RANK=0"), std::string::npos);
    EXPECT_NE(warnings[0].find("NODE_RANK=0"), std::string::npos);
}

TEST(TaskEnvironment, WhatAnOuterStepSetIsNotTheUsers) {
    TaskFacts outer = rank_5_of_8();
    outer.world_size = 2;
    outer.rank = 1;
    outer.local_world_size = 2;
    outer.nodes = 1;
    outer.cpus = 16;
    outer.sizes = {1, 2, 1};
    outer.interface = "ib7";
    const Variables inherited = task_with({}, outer, {"10.9.9.9", 111, 112, "10.9.9.9", ""}).first;
    auto [env, warnings] = task_with(inherited);
    EXPECT_TRUE(warnings.empty());
    // As without an outer step: nothing of it is left, not even where this step sets nothing.
    EXPECT_EQ(env, task_with({}).first);
    EXPECT_FALSE(env.contains("NCCL_SOCKET_IFNAME"));
}

// These are ours alone, so that DP_INJECTED need not remember them.
TEST(TaskEnvironment, AStepWithoutTilesSpeaksOfNone) {
    TaskFacts outer = rank_5_of_8();
    std::vector<TaskVariable> tiles;
    for (const char* name : kNamesOfTiles) tiles.push_back({name, "outer", TaskVariable::Whose::ours});
    tiles.push_back({"SF_RNT_TILE_AFFINITY", "0xf"});
    outer.tiles = tiles;
    const auto [inherited, none] = task_with({}, outer);
    for (const TaskVariable& tile : tiles) EXPECT_EQ(inherited.at(tile.name), tile.value);
    EXPECT_EQ(inherited.at("DP_INJECTED").find("DP_TILE"), std::string::npos);
    EXPECT_EQ(task_with(inherited).first, task_with({}).first);
    TaskFacts fewer = rank_5_of_8();
    const std::vector<TaskVariable> mask = {{"DP_TILE_MASK", "0x1", TaskVariable::Whose::ours}};
    fewer.tiles = mask;
    EXPECT_EQ(task_with(inherited, fewer), task_with({}, fewer)) << "without a warning";
}

TEST(TaskEnvironment, WhatTheUserSetInsideAnOuterStepIsTheUsers) {
    Variables inherited = task_with({}).first;
    inherited["MASTER_ADDR"] = "head";
    inherited["OMP_NUM_THREADS"] = "3";
    auto [env, warnings] = task_with(inherited);
    EXPECT_EQ(env["MASTER_ADDR"], "head");
    EXPECT_EQ(env["OMP_NUM_THREADS"], "3");
    EXPECT_EQ(warnings.size(), 1u);
}

TEST(TaskEnvironment, HasWhatTheFrameworksRead) {
    auto env = task_with({}).first;
    const Variables expected = {{"ROLE_RANK", "5"},
                                {"ROLE_NAME", "default"},
                                {"ROLE_WORLD_SIZE", "8"},
                                {"TORCHELASTIC_RESTART_COUNT", "3"},
                                {"PET_NNODES", "2"},
                                {"PET_NODE_RANK", "1"},
                                {"PET_MASTER_ADDR", "10.0.0.1"},
                                {"PET_MASTER_PORT", "29000"},
                                {"JAX_COORDINATOR_ADDRESS", "10.0.0.1:29001"},
                                {"SLURM_NTASKS_PER_NODE", "4"},
                                {"OMP_NUM_THREADS", "4"},
                                {"DP_TENSOR_RANK", "1"},
                                {"DP_TENSOR_SIZE", "2"},
                                {"DP_DATA_RANK", "0"},
                                {"DP_DATA_SIZE", "2"},
                                {"DP_PIPELINE_RANK", "1"},
                                {"DP_PIPELINE_SIZE", "2"}};
    for (const auto& [name, value] : expected) EXPECT_EQ(env[name], value) << name;
    for (const char* name : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TORCHELASTIC_USE_AGENT_STORE",
                             "TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS"})
        EXPECT_FALSE(env.contains(name)) << name;
}

TEST(TaskEnvironment, WhatTheUserSetForAFrameworkWinsWithoutAWord) {
    const Variables mine = {{"OMP_NUM_THREADS", "1"},        {"JAX_COORDINATOR_ADDRESS", "head:5"},
                            {"PET_MASTER_PORT", "7"},        {"PET_NNODES", "1:4"},
                            {"TORCHELASTIC_RUN_ID", "mine"}, {"SLURM_NTASKS_PER_NODE", "2"},
                            {"NCCL_SOCKET_IFNAME", "eth7"},  {"GLOO_SOCKET_IFNAME", "eth7"}};
    TaskFacts facts = rank_5_of_8();
    facts.interface = "ib0";
    auto [env, warnings] = task_with(mine, facts);
    for (const auto& [name, value] : mine) EXPECT_EQ(env[name], value) << name;
    EXPECT_TRUE(warnings.empty());
}

TEST(TaskEnvironment, TorchrunFollowsTheUsersMaster) {
    auto env = task_with({{"MASTER_ADDR", "head"}, {"MASTER_PORT", "5"}}).first;
    EXPECT_EQ(env["PET_MASTER_ADDR"], "head");
    EXPECT_EQ(env["PET_MASTER_PORT"], "5");
}

TEST(TaskEnvironment, AChosenInterfaceIsNamedToNcclAndGloo) {
    TaskFacts facts = rank_5_of_8();
    facts.interface = "ib0";
    auto env = task_with({}, facts).first;
    EXPECT_EQ(env["NCCL_SOCKET_IFNAME"], "=ib0");
    EXPECT_EQ(env["GLOO_SOCKET_IFNAME"], "ib0");
}

TEST(TaskEnvironment, ThePlansDaemonIsNamed) {
    TaskFacts facts = rank_5_of_8();
    NodePlan plan;
    plan.daemon = 4711;
    facts.take(plan);
    EXPECT_EQ(task_with({}, facts).first["DP_DAEMON_PID"], "4711");
    const NodePlan written{"10.0.0.1", 29000, 29001, "", "", 0, {}, 4711, "gpu[1-3]", "4(x2),3"};
    EXPECT_EQ(read_plan(write_plan(written))->daemon, 4711);
    EXPECT_EQ(
        hostfile_of(read_plan(write_plan(written))->hosts, read_plan(write_plan(written))->ranks_per_host),
        "gpu1 slots=4\ngpu2 slots=4\ngpu3 slots=3\n");
}

TEST(TaskEnvironment, AHostfileIsNamedWhereThereIsOne) {
    TaskFacts facts = rank_5_of_8();
    EXPECT_FALSE(task_with({}, facts).first.contains("DP_HOSTFILE"));
    facts.hostfile = "/proc/5/fd/7";
    EXPECT_EQ(task_with({}, facts).first["DP_HOSTFILE"], "/proc/5/fd/7");
}

TEST(TaskEnvironment, NcclWritesToAFileOfTheRank) {
    TaskFacts facts = rank_5_of_8();
    EXPECT_FALSE(task_with({}, facts).first.contains("NCCL_DEBUG_FILE"));
    facts.nccl_debug_file = "/home/my files/100%.5";
    auto env = task_with({}, facts).first;
    EXPECT_EQ(env["NCCL_DEBUG_FILE"], "/home/my files/100%%.5");
    EXPECT_EQ(env["NCCL_DEBUG"], "INFO");
    EXPECT_EQ(env["NCCL_DEBUG_SUBSYS"], "INIT,BOOTSTRAP,ENV,NET,GRAPH");
    // How much is said is the user's to say; with a file of the user's own, all is.
    EXPECT_EQ(task_with({{"NCCL_DEBUG", "WARN"}}, facts).first["NCCL_DEBUG"], "WARN");
    auto mine = task_with({{"NCCL_DEBUG_FILE", "nccl.%h.%p"}}, facts).first;
    EXPECT_EQ(mine["NCCL_DEBUG_FILE"], "nccl.%h.%p");
    EXPECT_FALSE(mine.contains("NCCL_DEBUG"));
    // A step in this one gets its own.
    facts.nccl_debug_file = "/inner";
    EXPECT_EQ(task_with(env, facts).first["NCCL_DEBUG_FILE"], "/inner");
    facts.nccl_debug_file = "";
    EXPECT_FALSE(task_with(env, facts).first.contains("NCCL_DEBUG_FILE"));
}

TEST(TaskEnvironment, AServedStoreMakesEveryRankAClientUnlessTheUserHasAMaster) {
    TaskFacts facts = rank_5_of_8();
    facts.settings.store = StoreKind::torch;
    auto env = task_with({}, facts).first;
    EXPECT_EQ(env["TORCHELASTIC_USE_AGENT_STORE"], "True");
    EXPECT_EQ(env["PET_MASTER_PORT"], "29001");  // torchrun binds its port itself
    EXPECT_EQ(task_with({{"USE_LIBUV", "0"}}, facts).first["TORCHELASTIC_USE_AGENT_STORE"], "1");
    for (const char* inherited : {"True", "1"})
        EXPECT_FALSE(task_with({{"MASTER_PORT", "5"}, {"TORCHELASTIC_USE_AGENT_STORE", inherited}}, facts)
                         .first.contains("TORCHELASTIC_USE_AGENT_STORE"));
}

TEST(TaskEnvironment, AnIpv6CoordinatorStandsInBrackets) {
    auto env = task_with({}, rank_5_of_8(), {"fd00::1", 29000, 29001, "fd00::2", ""}).first;
    EXPECT_EQ(env["MASTER_ADDR"], "fd00::1");
    EXPECT_EQ(env["JAX_COORDINATOR_ADDRESS"], "[fd00::1]:29001");
}

TEST(TaskEnvironment, UnevenTasksHaveNoTasksPerNode) {
    TaskFacts facts = rank_5_of_8();
    facts.local_world_size = 3;
    EXPECT_FALSE(task_with({}, facts).first.contains("SLURM_NTASKS_PER_NODE"));
}

TEST(Cpus, OfATaskAreItsShareWithinWhatItIsBoundToAndAskedFor) {
    struct {
        uint32_t asked, bound, step, tasks, expected;
    } const cases[] = {{0, 0, 0, 4, 0},  {0, 64, 0, 4, 64}, {0, 64, 32, 4, 8},
                       {0, 2, 32, 4, 2}, {3, 4, 16, 4, 3},  {8, 64, 16, 16, 1},
                       {0, 64, 2, 4, 1}, {5, 0, 0, 0, 5},   {0, 0, 16, 4, 4}};
    for (const auto& c : cases) EXPECT_EQ(cpus_of_task(c.asked, c.bound, c.step, c.tasks), c.expected);
}

TEST(ModelParallel, FollowsMegatronsOrder) {
    const auto sizes = ModelParallel::of_world(16, 2, 4);
    EXPECT_EQ(sizes, (ModelParallel{2, 2, 4}));
    using Ranks = std::vector<uint32_t>;
    // The example in megatron/core/parallel_state.py: 16 ranks, tensor 2, pipeline 4.
    EXPECT_EQ(sizes.group_of(Dimension::tensor, 5), (Ranks{4, 5}));
    EXPECT_EQ(sizes.group_of(Dimension::data, 0), (Ranks{0, 2}));
    EXPECT_EQ(sizes.group_of(Dimension::data, 15), (Ranks{13, 15}));
    EXPECT_EQ(sizes.group_of(Dimension::pipeline, 1), (Ranks{1, 5, 9, 13}));
    for (auto d : {Dimension::tensor, Dimension::data, Dimension::pipeline})
        for (uint32_t rank = 0; rank < 16; ++rank) {
            const auto members = sizes.group_of(d, rank);
            ASSERT_LT(sizes.rank_in(d, rank), members.size());
            EXPECT_EQ(members[sizes.rank_in(d, rank)], rank);
        }
    EXPECT_EQ(model_parallel_line(4, ModelParallel::of_world(4, 2, 2)),
              "using world size: 4, data-parallel-size: 1, tensor-model-parallel size: 2, "
              "pipeline-model-parallel size: 2");
}

TEST(TaskEnvironment, TakesTheLaunchersVariablesAway) {
    Variables before;
    for (const char* name : kLauncherVariables) before[name] = "x";
    auto env = task_with(before).first;
    for (const char* name : kLauncherVariables) EXPECT_FALSE(env.contains(name)) << name;
}

// A plain srun inside a rank.
TEST(World, TheVariablesOfAnotherStepAreNoPlaceInIt) {
    TaskFacts facts = rank_5_of_8();
    struct {
        const char* socket;
        Variables slurm;
        bool is_own;
    } const cases[] = {
        {"slurm-dp/12.0/1001/5f", {{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}}, true},
        {"slurm-dp/12.0/1001/5f", {{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "1"}}, false},
        {"slurm-dp/12.0/1001/5f", {{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "10"}}, false},
        {"slurm-dp/12.0/1001/5f",
         {{"SLURM_JOB_ID", "13"}, {"SLURM_STEP_ID", "0"}},
         false},  // sbatch in a rank
        // A component of a heterogeneous job, which has an id of its own.
        {"slurm-dp/13.0/1001/5f",
         {{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}, {"SLURM_HET_SIZE", "2"}},
         true},
        {"slurm-dp/13.0/1001/5f",
         {{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "1"}, {"SLURM_HET_SIZE", "2"}},
         false},
        {"slurm-dp/local.4711/1001/5f",
         {{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}},
         true},                                                     // dpctl launch
        {"slurm-dp/12.0/1001/5f", {{"SLURM_JOB_ID", "12"}}, true},  // who knows
        {"slurm-dp/12.0/1001/5f", {}, true},
    };
    for (const auto& c : cases) {
        facts.socket = "@" + std::string(c.socket);
        Variables inner = task_with({}, facts).first;
        inner.insert(c.slurm.begin(), c.slurm.end());
        const auto world = world_from_environment([&](const char* name) -> std::optional<std::string> {
            const auto found = inner.find(name);
            return found == inner.end() ? std::nullopt : std::optional(found->second);
        });
        EXPECT_EQ(world.has_value(), c.is_own) << c.socket;
        if (world) continue;
        const std::string& why = world.error().message;
        EXPECT_NE(why.find("this is a task of step " + c.slurm.at("SLURM_JOB_ID") + "." +
                           c.slurm.at("SLURM_STEP_ID") + ": an srun inside a rank"),
                  std::string::npos)
            << why;
        EXPECT_NE(why.find("start it with --dp-world=auto"), std::string::npos);
    }
}

TEST(World, ABrokenEnvironmentIsNamed) {
    const Variables good = task_with({}).first;
    for (const auto& [name, value] : Variables{{"DP_RANK", "x"},
                                               {"DP_RANK", ""},
                                               {"DP_SOCKET", "/tmp/s"},
                                               {"DP_RANK", "8"},
                                               {"DP_WORLD_SIZE", "-1"},
                                               {"DP_TENSOR_SIZE", "3"},
                                               {"DP_NODE_RANK", "2"}}) {
        Variables bad = good;
        bad[name] = value;
        EXPECT_FALSE(world_from_environment([&](const char* n) -> std::optional<std::string> {
            auto found = bad.find(n);
            return found == bad.end() ? std::nullopt : std::optional<std::string>(found->second);
        })) << name
            << "=" << value;
    }
}

}  // namespace
}  // namespace dp
