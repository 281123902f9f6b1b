// SPDX-License-Identifier: Apache-2.0
#include "common/task_environment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "libdp/world.hpp"
#include "raw_environment.hpp"

namespace dp {
namespace {

std::vector<TaskVariable> no_tiles(uint32_t) {
    return {};
}

using Variables = std::map<std::string, std::string>;

TaskFacts rank_5_of_8() {
    TaskFacts f;
    f.rank = 5;
    f.world_size = 8;
    f.local_rank = 1;
    f.local_world_size = 4;
    f.node_rank = 1;
    f.nodes = 2;
    f.generation = 3;
    f.timeout_seconds = 60;
    f.cpus = 4;
    f.sizes = ModelParallel::of_world(8, 2, 2);
    f.run = "12.0";
    f.socket = "@slurm-dp/1.0/abc";
    return f;
}

const NodePlan kPlan{"10.0.0.1", 29000, 29001, "10.0.0.2", ""};

// The environment of a task that had `before`, and the warnings.
std::pair<Variables, std::vector<std::string>> task_with(Variables before,
                                                         const TaskFacts& facts = rank_5_of_8(),
                                                         const NodePlan& plan = kPlan) {
    auto out = task_environment(facts, plan, [&](const char* name) -> std::optional<std::string> {
        auto found = before.find(name);
        return found == before.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
    Variables after = before;
    for (const auto& change : out.changes) {
        if (change.value)
            after[change.name] = *change.value;
        else
            after.erase(change.name);
    }
    return {after, out.warnings};
}

TEST(TaskEnvironment, HasTheFieldsNames) {
    auto [env, warnings] = task_with({});
    const Variables expected = {
        {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29000"},  {"WORLD_SIZE", "8"}, {"RANK", "5"},
        {"LOCAL_RANK", "1"},         {"LOCAL_WORLD_SIZE", "4"}, {"NODE_RANK", "1"},  {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"}};
    for (const auto& [name, value] : expected) EXPECT_EQ(env[name], value) << name;
    EXPECT_TRUE(warnings.empty());
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
    outer.run = "11.5";
    const Variables inherited = task_with({}, outer, {"10.9.9.9", 111, 112, "10.9.9.9", ""}).first;
    auto [env, warnings] = task_with(inherited);
    EXPECT_TRUE(warnings.empty());
    // As without an outer step: nothing of it is left, not even where this step sets nothing.
    EXPECT_EQ(env, task_with({}).first);
    EXPECT_FALSE(env.contains("NCCL_SOCKET_IFNAME"));
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
                                {"TORCHELASTIC_RUN_ID", "12.0"},
                                {"TORCHELASTIC_RESTART_COUNT", "3"},
                                {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "False"},
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
    for (const char* name : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) EXPECT_FALSE(env.contains(name));
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

TEST(TaskEnvironment, AServedStoreMakesEveryRankAClientUnlessTheUserHasAMaster) {
    TaskFacts facts = rank_5_of_8();
    facts.torch_store = true;
    auto env = task_with({}, facts).first;
    EXPECT_EQ(env["TORCHELASTIC_USE_AGENT_STORE"], "True");
    EXPECT_EQ(env["PET_MASTER_PORT"], "29001");  // torchrun binds its port itself
    EXPECT_EQ(task_with({{"MASTER_PORT", "5"}}, facts).first["TORCHELASTIC_USE_AGENT_STORE"], "False");
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

// ---- what is made once for a node ----

GetVariable reading(const Variables& from) {
    return [&from](const char* name) -> std::optional<std::string> {
        auto found = from.find(name);
        return found == from.end() ? std::nullopt : std::optional<std::string>(found->second);
    };
}

void change(Variables& env, const std::vector<EnvironmentChange>& changes) {
    for (const auto& c : changes) {
        if (c.value)
            env[c.name] = *c.value;
        else
            env.erase(c.name);
    }
}

TaskFacts task_of_node(uint32_t local, uint32_t cpus) {
    TaskFacts task = rank_5_of_8();
    task.local_rank = local;
    task.rank = 4 + local;
    task.cpus = cpus;
    return task;
}

// And then what is left in each task comes out as if all had been made in the task.
TEST(NodeEnvironment, ChangesNothingInWhatATaskSees) {
    const Variables befores[] = {
        {},
        {{"WORLD_SIZE", "4"}, {"NODE_RANK", "7"}, {"ROLE_NAME", "mine"}, {"PATH", "/bin"}},
        {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29000"}, {"TORCHELASTIC_RUN_ID", ""}},
        {{"DP_INJECTED", "WORLD_SIZE=16 NODE_RANK=3 NCCL_SOCKET_IFNAME=old"},
         {"WORLD_SIZE", "16"},
         {"NODE_RANK", "3"},
         {"NCCL_SOCKET_IFNAME", "old"},
         {"DP_NODES", "4"},
         {kSecretVariable, "5ec7e7"}},
    };
    // Set by another plugin after the node's, before a task's.
    const Variables others[] = {{}, {{"OMP_NUM_THREADS", "7"}, {"DP_NODES", "77"}}};
    for (const bool torch_store : {false, true})
        for (const bool with_interface : {false, true})
            for (const Variables& before : befores)
                for (const Variables& other : others) {
                    TaskFacts any = task_of_node(0, 0);
                    any.torch_store = torch_store;
                    if (with_interface) any.interface = "hsn0";
                    const NodeEnvironment node = node_environment(any, no_tiles, reading(before));
                    EXPECT_GT(node.changes().size(), 20u);
                    Variables inherited = before;
                    change(inherited, node.changes());
                    Variables without = before;
                    for (const auto& [name, value] : other) inherited[name] = without[name] = value;
                    for (uint32_t local = 0; local < 4; ++local) {
                        TaskFacts task = task_of_node(local, local < 3 ? 2 : 0);
                        task.torch_store = any.torch_store;
                        task.interface = any.interface;
                        const auto [expected, warnings] = task_with(without, task);
                        const auto there = reading(inherited);
                        const auto out = task_environment(
                            task, kPlan, [&](const char* name) { return node.get(name, there); });
                        const auto left = node.left_of(out.changes, there);
                        // Set anew in each task: only what is too long for a blank.
                        for (const auto& c : left) {
                            const auto found = inherited.find(c.name);
                            const bool has_room = found != inherited.end() && c.value &&
                                                  c.value->size() <= found->second.size();
                            EXPECT_TRUE(has_room || !c.value || !other.empty()) << c.name;
                        }
                        Variables env = inherited;
                        change(env, left);
                        EXPECT_EQ(env, expected);
                        EXPECT_EQ(out.warnings, warnings);
                    }
                }
}

// As NVIDIA's pyxis does with a container's image and hooks: nobody's wish, and guessed.
TEST(NodeEnvironment, WhatAnotherPluginBringsForTheWorldIsNotTheUsers) {
    const Variables brought = {{"MASTER_ADDR", "node01"}, {"MASTER_PORT", "61007"},
                               {"WORLD_SIZE", "8"},       {"RANK", "4"},
                               {"LOCAL_RANK", "0"},       {"OMP_NUM_THREADS", "1"}};
    const std::pair<Variables, std::string> befores[] = {{{}, "10.0.0.1"},
                                                         {{{"MASTER_ADDR", "10.5.5.5"}}, "10.5.5.5"}};
    for (const auto& [before, address] : befores) {
        TaskFacts task = task_of_node(0, 2);
        task.torch_store = true;
        const NodeEnvironment node = node_environment(task, no_tiles, reading(before));
        Variables inherited = before;
        change(inherited, node.changes());
        for (const auto& [name, value] : brought) inherited[name] = value;
        const auto there = reading(inherited);
        const auto out =
            task_environment(task, kPlan, [&](const char* name) { return node.get(name, there); });
        Variables env = inherited;
        change(env, node.left_of(out.changes, there));
        EXPECT_EQ(env["MASTER_ADDR"], address);
        EXPECT_EQ(env["MASTER_PORT"], "29000");
        EXPECT_EQ(env["OMP_NUM_THREADS"], "1");
        EXPECT_EQ(env["TORCHELASTIC_USE_AGENT_STORE"], before.empty() ? "True" : "False");
        // About the user's own address, where there is one.
        EXPECT_EQ(out.warnings.size(), before.size());
    }
}

// Neither the node nor its tasks need to set anything anew, which costs Slurm much: see empty_slots.
TEST(NodeEnvironment, FitsIntoTheSlotsThatSrunSends) {
    std::vector<std::string> sent = {"PATH=/bin"};
    for (const auto& slot : empty_slots(true)) sent.push_back(slot.name + "=" + *slot.value);
    TaskFacts any = task_of_node(0, 0);
    any.interface = "hsn0";
    any.torch_store = true;
    const Variables nothing;
    const TilesOf tiles = [](uint32_t local) {
        std::vector<TaskVariable> variables;
        for (const char* name : {"DP_TILE_MASK", "DP_TILE_LIST", "DP_TILE_COUNT", "DP_TILES_PER_DEVICE",
                                 "DP_TILE_DEVICE", "DP_TILE_NUMA", "ZE_AFFINITY_MASK",
                                 "ZE_FLAT_DEVICE_HIERARCHY", "ZE_ENABLE_PCI_ID_DEVICE_ORDER"})
            variables.push_back({name, std::to_string(local)});
        return variables;
    };
    const NodeEnvironment node = node_environment(any, tiles, reading(nothing));
    RawEnvironment environment(sent);
    for (const auto& c : node.changes()) EXPECT_TRUE(!c.value || environment.write(c)) << c.name;
    NodePlan far = kPlan;
    far.master_addr = far.node_addr = "2001:0db8:85a3:0000:0000:8a2e:0370:7334";
    far.master_port = far.coordinator_port = 65535;
    TaskFacts task = any;
    task.cpus = 1024;
    task.tiles = tiles(7);
    for (const auto& c : task_environment(task, far, reading(nothing)).changes)
        EXPECT_TRUE(!c.value || environment.write(c)) << c.name;
    const auto after = environment.entries();
    EXPECT_NE(std::find(after.begin(), after.end(), "MASTER_ADDR=" + far.master_addr), after.end());
}

TEST(NodeEnvironment, LeavesNoBlankBehind) {
    const Variables before = {{"RANK", "of the user"}, {"MASTER_ADDR", "10.0.0.1"}, {"PATH", "/bin"}};
    const NodeEnvironment node = node_environment(task_of_node(0, 0), no_tiles, reading(before));
    Variables there = before;
    change(there, node.changes());
    EXPECT_EQ(there["RANK"].find_first_not_of(' '), std::string::npos);
    there["LOCAL_RANK"] = "another plugin's";
    const Variables inherited = there;
    change(there, node.without_blanks(reading(inherited)));
    EXPECT_EQ(there["RANK"], "of the user");
    EXPECT_EQ(there["LOCAL_RANK"], "another plugin's");
    EXPECT_EQ(there["WORLD_SIZE"], "8");
    EXPECT_FALSE(there.contains("MASTER_PORT"));
    for (const auto& [name, value] : there)
        EXPECT_NE(value.find_first_not_of(' '), std::string::npos) << name;
}

}  // namespace
}  // namespace dp
