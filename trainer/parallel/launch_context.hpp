// SPDX-License-Identifier: Apache-2.0
//
// How this process was launched, and what follows for data parallelism. read_launch_context() reads the
// environment; the rest are pure functions of it.
#pragma once

#include <optional>
#include <string>

#include "trainer/base/result.hpp"
#include "trainer/devices/gpu_share.hpp"

namespace dp::trainer {

enum class DataParallel { automatic, on, off };

struct LaunchContext {
    bool in_step = false;            // a rank of a step of slurm-dp, or of `dpctl launch`
    int slurm_tasks = 1;             // SLURM_NTASKS
    int slurm_task = 0;              // SLURM_PROCID; 0 in a batch script, too
    int dp_rank = 0;                 // DP_RANK
    int tensor_size = 1;             // DP_TENSOR_SIZE (--dp-tensor)
    int pipeline_size = 1;           // DP_PIPELINE_SIZE (--dp-pipeline)
    int local_rank = 0;              // LOCAL_RANK, else SLURM_LOCALID
    int local_size = 1;              // LOCAL_WORLD_SIZE, else tasks on this node as far as Slurm says
    GpuShare gpu;                    // DP_TILE_* (--dp-tiles), else the whole of number local_rank
    int affinity_cpus = 1;           // CPUs that this process may run on
    int node_cpus = 1;               // SLURM_CPUS_ON_NODE, else those online
    std::optional<int> omp_threads;  // OMP_NUM_THREADS
};

LaunchContext read_launch_context();

// Pure: whether this process prints for all that were launched with it: rank 0 of a step, task 0 of tasks
// that Slurm started without one, or a single process.
bool is_primary_process(const LaunchContext& here);

struct ParallelDecision {
    bool join = false;       // open the world through libdp
    bool is_primary = true;  // this process prints progress and the summary; the others keep quiet
    std::optional<std::string> warning;
};

// Pure: what --data-parallel means here.
Result<ParallelDecision> decide_parallel(DataParallel wanted, const LaunchContext& here);

// Pure: threads of the CPU device. OMP_NUM_THREADS wins; else the CPUs of the task, but no more than its
// share of the node: ranks that are not bound would otherwise all use all CPUs.
int threads_for(const LaunchContext& here);

}  // namespace dp::trainer
