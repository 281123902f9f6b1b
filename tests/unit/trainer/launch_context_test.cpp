// SPDX-License-Identifier: Apache-2.0
//
// What --data-parallel means in each environment, and the threads per rank: tables over pure functions.
#include "trainer/parallel/launch_context.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

LaunchContext alone() {
    return {};
}
LaunchContext rank(int number) {
    LaunchContext here;
    here.in_step = true;
    here.dp_rank = number;
    here.slurm_tasks = 8;
    here.slurm_task = number;
    return here;
}
LaunchContext task_without_plugin(int number) {
    LaunchContext here;
    here.slurm_tasks = 8;
    here.slurm_task = number;
    return here;
}

TEST(DecideParallel, JoinsWhereThereIsAStepUnlessSwitchedOff) {
    struct Case {
        DataParallel wanted;
        LaunchContext here;
        bool join, is_primary;
    };
    const Case cases[] = {
        {DataParallel::automatic, alone(), false, true}, {DataParallel::off, alone(), false, true},
        {DataParallel::automatic, rank(0), true, true},  {DataParallel::on, rank(0), true, true},
        {DataParallel::automatic, rank(3), true, false}, {DataParallel::on, rank(3), true, false},
        {DataParallel::off, rank(0), false, true},       {DataParallel::off, rank(3), false, false},
    };
    for (const auto& c : cases) {
        const auto decision = decide_parallel(c.wanted, c.here);
        ASSERT_TRUE(decision);
        EXPECT_EQ(decision->join, c.join);
        EXPECT_EQ(decision->is_primary, c.is_primary);
        EXPECT_FALSE(decision->warning);
    }
}

TEST(DecideParallel, OnWithoutAStepIsAnErrorThatSaysHowToStartOne) {
    for (const auto& here : {alone(), task_without_plugin(0)}) {
        const auto decision = decide_parallel(DataParallel::on, here);
        ASSERT_FALSE(decision);
        EXPECT_EQ(decision.error().fault, Fault::world);
        EXPECT_THAT(decision.error().message, HasSubstr("srun --dp-world=auto"));
        EXPECT_THAT(decision.error().message, HasSubstr("dpctl launch"));
    }
}

TEST(DecideParallel, TasksOfSlurmThatTrainAloneAreWarnedOnce) {
    const auto first = decide_parallel(DataParallel::automatic, task_without_plugin(0));
    ASSERT_TRUE(first);
    EXPECT_FALSE(first->join);
    EXPECT_TRUE(first->is_primary);
    EXPECT_THAT(first->warning.value_or(""), HasSubstr("8 tasks"));
    EXPECT_THAT(first->warning.value_or(""), HasSubstr("--dp-world=auto"));
    const auto other = decide_parallel(DataParallel::automatic, task_without_plugin(5));
    ASSERT_TRUE(other);
    EXPECT_FALSE(other->is_primary);
    EXPECT_FALSE(decide_parallel(DataParallel::off, task_without_plugin(0))->warning) << "it was asked for";
}

// The device's memory is divided by it.
TEST(Ranks, OfANodeAreAtLeastThisOneWhateverTheEnvironmentSays) {
    for (const char* name : {"LOCAL_WORLD_SIZE", "SLURM_TASKS_PER_NODE"}) {
        for (const char* value : {"0", "-3", "none"}) {
            setenv(name, value, 1);
            EXPECT_EQ(read_launch_context().local_size, 1) << name << "=" << value;
            unsetenv(name);
        }
    }
}

TEST(SpeaksForAll, IsOneOfAStepAndOneOfTasksWithoutAStep) {
    for (const auto& one : {alone(), rank(0), task_without_plugin(0)}) EXPECT_TRUE(is_primary_process(one));
    for (const auto& other : {rank(1), rank(7), task_without_plugin(5)})
        EXPECT_FALSE(is_primary_process(other));
    // Slurm's numbers are another world's where a step is made of a part of its tasks.
    LaunchContext here = rank(0);
    here.slurm_task = 4;
    EXPECT_TRUE(is_primary_process(here));
}

TEST(Threads, AreTheTasksOwnCpusOrItsShareOfTheNode) {
    struct Case {
        int affinity, node, local;
        std::optional<int> omp;
        int threads;
    };
    const Case cases[] = {
        {2, 2, 1, {}, 2},              // alone on a small machine
        {2, 2, 4, {}, 1},              // four ranks share two CPUs
        {4, 64, 4, {}, 4},             // bound to four CPUs of many
        {64, 64, 4, {}, 16},           // not bound: a quarter each
        {64, 64, 4, 3, 3},             // OMP_NUM_THREADS wins
        {64, 64, 4, 0, 16},            // unless it is nonsense
        {64, 64, 4, 1'000'000, 4096},  // or would end the process
        {8, 8, 0, {}, 8},
    };
    for (const auto& c : cases) {
        LaunchContext here;
        here.affinity_cpus = c.affinity;
        here.node_cpus = c.node;
        here.local_size = c.local;
        here.omp_threads = c.omp;
        EXPECT_EQ(threads_for(here), c.threads)
            << c.affinity << " of " << c.node << ", " << c.local << " ranks";
    }
}

}  // namespace
}  // namespace dp::trainer
