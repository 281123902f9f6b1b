// SPDX-License-Identifier: Apache-2.0
#include "srun_words.hpp"

#include <gtest/gtest.h>

#include "../common/some_task.hpp"

namespace dp::plugin {
namespace {

TEST(SrunWords, ProgramsThatAreNoRanks) {
    for (const char* program : {"orted", "/usr/bin/prted", "./hydra_pmi_proxy"})
        EXPECT_TRUE(is_mpi_launcher(program)) << program;
    for (const char* program : {"", "/", "orted.sh", "my-orted", "orted/run"})
        EXPECT_FALSE(is_mpi_launcher(program)) << program;
    EXPECT_TRUE(is_dpctl_without_a_world("dpctl", "status"));
    EXPECT_TRUE(is_dpctl_without_a_world("/usr/bin/dpctl", "top"));
    EXPECT_FALSE(is_dpctl_without_a_world("dpctl", "doctor")) << "it compares the nodes of its own";
    EXPECT_FALSE(is_dpctl_without_a_world("dpctl.py", "status"));
}

TEST(SrunWords, GresOfTheStepsOwn) {
    for (const char* word :
         {"--gres", "--gres=tile:4", "--gre=tile:4", "--gpus=1", "--gpus", "--gpus-per-node=1",
          "--gpus-per-task=2", "--gpus-per-s=1", "--ntasks-per-gpu=2", "--ntasks-per-gp=2",
          "--tres-per-task=gres/tile:4", "-G", "-G1", "-lG1", "-vvG", "-vG=2"})
        EXPECT_TRUE(asks_for_gres(word)) << word;
    for (const char* word :
         {"", "-", "-l", "-n2", "-N1", "-JG", "-pGPU", "-wG1", "-vpG", "G", "G1", "--gpu-bind=single:1",
          "--gpu-freq=high", "--gres-flags=enforce-binding", "--tres-bind=gres/gpu:map:0",
          "--ntasks-per-node=2", "--cpus-per-gpu=2", "tile:4"})
        EXPECT_FALSE(asks_for_gres(word)) << word;
}

TEST(SrunWords, GresOfTheStepsOwnInTheEnvironment) {
    const struct {
        const char* variable;
        const char* value;
        bool asks;
    } cases[] = {{"SLURM_GPUS", "1", true},
                 {"SLURM_GRES", "none", true},
                 {"SLURM_TRES_PER_TASK", "cpu=2,gres/tile=4", true},
                 {"SLURM_TRES_PER_TASK", "cpu=2", false},  // of --cpus-per-task since 24.11
                 {"SLURM_GPUS", "", false},
                 {"SLURM_GPUS_ON_NODE", "4", false},
                 {"SLURM_JOB_GPUS", "0,1", false}};
    for (const auto& c : cases) {
        const Variables environment = {{c.variable, c.value}};
        EXPECT_EQ(environment_asks_for_gres(reading(environment)), c.asks) << c.variable << "=" << c.value;
    }
}

TEST(SrunWords, NoKill) {
    for (const char* word : {"-k", "-lk", "-kl", "--no-kill", "--no-k", "-lkn4"})
        EXPECT_TRUE(asks_for_no_kill(word)) << word;
    for (const char* word :
         {"", "-", "k", "-n4", "-Jk", "-pk", "--kill-on-bad-exit", "-K", "--no-kill=off", "--nokill"})
        EXPECT_FALSE(asks_for_no_kill(word)) << word;
}

TEST(SrunWords, Bindings) {
    for (const char* word :
         {"--cpu-bind=none", "--cpu-b=none", "--cpu_bind=none", "--mem-bind=local", "--mem_bind=local"})
        EXPECT_TRUE(binds_tasks(word)) << word;
    for (const char* word : {"", "--cpus-per-task=2", "--mem=1G", "--gpu-bind=none", "-c2"})
        EXPECT_FALSE(binds_tasks(word)) << word;
}

}  // namespace
}  // namespace dp::plugin
