// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/launch_context.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "dp/dp.h"

namespace dp::trainer {
namespace {

// More CPUs than any node has. OpenMP keeps all threads on its stack, and ends the process if that overflows.
constexpr int kMostThreads = 4096;

std::optional<int> number(const char* name) {
    const char* text = std::getenv(name);
    int result = 0;
    // Slurm writes SLURM_TASKS_PER_NODE as "4(x2)": only the leading number counts here.
    if (text == nullptr || std::from_chars(text, text + std::strlen(text), result).ec != std::errc())
        return std::nullopt;
    return result;
}

int cpus_of_process() {
    cpu_set_t set;
    CPU_ZERO(&set);
    // If there are more CPUs than cpu_set_t holds (1024), the share of the node decides.
    if (sched_getaffinity(0, sizeof set, &set) != 0) return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    return CPU_COUNT(&set);
}

}  // namespace

LaunchContext read_launch_context() {
    LaunchContext here;
    here.in_step = dp_in_step() != 0;
    here.slurm_tasks = number("SLURM_NTASKS").value_or(1);
    here.slurm_task = number("SLURM_PROCID").value_or(0);
    here.dp_rank = number("DP_RANK").value_or(0);
    here.tensor_size = number("DP_TENSOR_SIZE").value_or(1);
    here.pipeline_size = number("DP_PIPELINE_SIZE").value_or(1);
    here.local_rank = number("LOCAL_RANK").value_or(number("SLURM_LOCALID").value_or(0));
    const char* tiles = std::getenv("DP_TILE_LIST");
    here.gpu = gpu_share(number("DP_TILE_DEVICE").value_or(here.local_rank), tiles ? tiles : "",
                         static_cast<std::uint32_t>(std::max(number("DP_TILES_PER_DEVICE").value_or(1), 1)));
    // A device's memory is divided by it.
    here.local_size =
        std::max(number("LOCAL_WORLD_SIZE").value_or(number("SLURM_TASKS_PER_NODE").value_or(1)), 1);
    here.affinity_cpus = cpus_of_process();
    here.node_cpus = number("SLURM_CPUS_ON_NODE").value_or(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
    here.omp_threads = number("OMP_NUM_THREADS");
    return here;
}

bool is_primary_process(const LaunchContext& here) {
    return (here.in_step ? here.dp_rank : here.slurm_task) == 0;
}

Result<ParallelDecision> decide_parallel(DataParallel wanted, const LaunchContext& here) {
    if (wanted == DataParallel::on && !here.in_step)
        return fail(Fault::world,
                    "--data-parallel=on, but this process is not a rank of a step: start it with `srun "
                    "--dp-world=auto trainer` under Slurm, or with `dpctl launch -n 4 -- trainer` on one "
                    "machine");
    const bool wants = wanted != DataParallel::off;
    ParallelDecision decision{here.in_step && wants, is_primary_process(here), std::nullopt};
    if (wants && !here.in_step && here.slurm_tasks > 1)
        decision.warning = fmt::format(
            "Slurm started {} tasks, but this trainer is not a rank of a world and trains alone: start it "
            "with `srun --dp-world=auto` to train with all of them (or give --data-parallel=off)",
            here.slurm_tasks);
    return decision;
}

int threads_for(const LaunchContext& here) {
    if (here.omp_threads && *here.omp_threads > 0) return std::min(*here.omp_threads, kMostThreads);
    const int share = here.node_cpus / std::max(here.local_size, 1);
    return std::max(std::min(here.affinity_cpus, share), 1);
}

}  // namespace dp::trainer
