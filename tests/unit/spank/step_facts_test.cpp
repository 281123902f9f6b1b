// SPDX-License-Identifier: Apache-2.0
#include "step_facts.hpp"

#include <gtest/gtest.h>

#include "../common/some_task.hpp"
#include "fake_spank.hpp"

namespace dp::plugin {
namespace {

// Node 1 of two, with tasks 2 and 3 of four.
SpankItems second_node() {
    return {{{S_JOB_UID, 1001},
             {S_JOB_ID, 12},
             {S_JOB_STEPID, 3},
             {S_JOB_NNODES, 2},
             {S_JOB_NODEID, 1},
             {S_JOB_TOTAL_TASK_COUNT, 4},
             {S_JOB_LOCAL_TASK_COUNT, 2},
             {S_JOB_NCPUS, 8}},
            {2, 3}};
}

const Variables kEnvironment = {{"SLURM_STEP_NODELIST", "gpu[01-02]"}, {"SLURM_STEP_NUM_TASKS", "4"}};

TEST(StepFacts, AreGatheredFromSlurm) {
    spank_items = second_node();
    StepFacts facts;
    ASSERT_TRUE(gather_facts(nullptr, reading(kEnvironment), facts));
    EXPECT_EQ(facts.name(), "12.3");
    EXPECT_EQ(facts.host, "gpu02");
    EXPECT_EQ(facts.rank_zero_host(), "gpu01");
    EXPECT_EQ(facts.ranks, (std::vector<uint32_t>{2, 3}));
    EXPECT_EQ(facts.cpus, 8u);
    EXPECT_FALSE(facts.heterogeneous || facts.has_rank_zero());
}

TEST(StepFacts, FollowSrunsOrderOfTheNodes) {
    spank_items = second_node();
    StepFacts facts;
    Variables environment = kEnvironment;
    environment["SLURM_DP_NODE_ORDER"] = "gpu02,gpu01";
    ASSERT_TRUE(gather_facts(nullptr, reading(environment), facts));
    EXPECT_EQ(facts.node_rank, 0u);
    EXPECT_EQ(facts.rank_zero_host(), "gpu02");
}

TEST(StepFacts, OfAComponentNameItsNodeAndCountAllTasks) {
    spank_items = second_node();
    StepFacts facts;
    const Variables environment = {{"SLURM_STEP_NODELIST", "cpu01,gpu[01-02]"},
                                   {"SLURM_STEP_NUM_TASKS", "6"},
                                   {"SLURM_STEP_NUM_NODES", "3"},
                                   {"SLURMD_NODENAME", "gpu02"}};
    ASSERT_TRUE(gather_facts(nullptr, reading(environment), facts));
    EXPECT_TRUE(facts.heterogeneous);
    EXPECT_EQ(facts.host, "gpu02");
    EXPECT_EQ(facts.world_size, 6u);
    EXPECT_EQ(facts.nodes, 3u);
}

// A task ends the step by its ids, and its message names the host.
TEST(StepFacts, SurviveAFailure) {
    Variables elsewhere = kEnvironment;
    elsewhere["SLURM_DP_NODE_ORDER"] = "gpu01,gpu03";
    SpankItems without_a_rank = second_node();
    without_a_rank.ranks.pop_back();
    SpankItems without_the_user = second_node();
    without_the_user.numbers.erase(S_JOB_UID);
    const struct {
        SpankItems items;
        Variables environment;
        const char* why;
    } cases[] = {{second_node(), elsewhere, "does not have this one"},
                 {without_a_rank, kEnvironment, "the rank of local task 1"},
                 {without_the_user, kEnvironment, "does not tell the plugin its step"}};
    for (const auto& c : cases) {
        spank_items = c.items;
        Variables environment = c.environment;
        environment["SLURMD_NODENAME"] = "gpu02";
        StepFacts facts;
        const auto gathered = gather_facts(nullptr, reading(environment), facts);
        ASSERT_FALSE(gathered) << c.why;
        EXPECT_NE(gathered.error().message.find(c.why), std::string::npos) << gathered.error().message;
        EXPECT_EQ(facts.host, "gpu02") << c.why;
        EXPECT_EQ(facts.leader_job_id, 12u) << c.why;
        EXPECT_EQ(facts.step_id, 3u) << c.why;
        EXPECT_EQ(facts.nodes, 2u) << c.why;
    }
    spank_items = {};
}

}  // namespace
}  // namespace dp::plugin
