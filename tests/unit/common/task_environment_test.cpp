// SPDX-License-Identifier: Apache-2.0
#include "common/task_environment.hpp"

#include <gtest/gtest.h>

#include <map>

#include "libdp/world.hpp"

namespace dp {
namespace {

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
    f.socket = "@slurm-dp/1.0/abc";
    return f;
}

const NodePlan kPlan{"10.0.0.1", 29000, 29001, "10.0.0.2", ""};

// The environment of a task that had `before`, and the warnings.
std::pair<Variables, std::vector<std::string>> apply(Variables before,
                                                     const TaskFacts& facts = rank_5_of_8()) {
    auto out = task_environment(facts, kPlan, [&](const char* name) -> std::optional<std::string> {
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
    auto [env, warnings] = apply({});
    const Variables expected = {
        {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29000"},  {"WORLD_SIZE", "8"}, {"RANK", "5"},
        {"LOCAL_RANK", "1"},         {"LOCAL_WORLD_SIZE", "4"}, {"NODE_RANK", "1"},  {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"}};
    for (const auto& [name, value] : expected) EXPECT_EQ(env[name], value) << name;
    EXPECT_TRUE(warnings.empty());
}

TEST(TaskEnvironment, IsWhatLibdpReads) {
    auto [env, warnings] = apply({});
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
    auto [env, warnings] = apply({{"MASTER_ADDR", "head"}, {"WORLD_SIZE", "8"}});
    EXPECT_EQ(env["MASTER_ADDR"], "head");
    EXPECT_EQ(env["DP_MASTER_ADDR"], "10.0.0.1");
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("MASTER_ADDR=head"), std::string::npos);
}

TEST(TaskEnvironment, AnEmptyVariableCountsAsMissing) {
    EXPECT_EQ(apply({{"MASTER_ADDR", ""}}).first["MASTER_ADDR"], "10.0.0.1");
}

TEST(TaskEnvironment, APerTaskNameIsAlwaysOurs) {
    auto [env, warnings] = apply({{"NODE_RANK", "0"}, {"RANK", "0"}});
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
    Variables inherited = apply({}, outer).first;
    inherited["MASTER_ADDR"] = inherited["DP_MASTER_ADDR"] = "10.9.9.9";
    auto [env, warnings] = apply(inherited);
    EXPECT_TRUE(warnings.empty());
    EXPECT_EQ(env["MASTER_ADDR"], "10.0.0.1");
    EXPECT_EQ(env["WORLD_SIZE"], "8");
    EXPECT_EQ(env["RANK"], "5");
}

TEST(TaskEnvironment, TakesTheLaunchersVariablesAway) {
    Variables before;
    for (const char* name : kLauncherVariables) before[name] = "x";
    auto env = apply(before).first;
    for (const char* name : kLauncherVariables) EXPECT_FALSE(env.contains(name)) << name;
}

TEST(World, ABrokenEnvironmentIsNamed) {
    const Variables good = apply({}).first;
    for (const auto& [name, value] : Variables{{"DP_RANK", "x"},
                                               {"DP_RANK", ""},
                                               {"DP_SOCKET", "/tmp/s"},
                                               {"DP_RANK", "8"},
                                               {"DP_WORLD_SIZE", "-1"},
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
