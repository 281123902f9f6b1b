// SPDX-License-Identifier: Apache-2.0
//
// The CPUs of one rank: those near its tiles, of what Slurm gave it, divided among the ranks there. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace dp {

// Far above Linux's NR_CPUS: a guard against "0-4294967295".
inline constexpr uint32_t kMaxCpu = 65535;

using Cpus = std::vector<uint32_t>;  // ascending

struct CpuFacts {
    Cpus allowed;            // to this task
    std::vector<Cpus> near;  // each rank's of the node, by local rank
    uint32_t local_rank = 0;
    // Whether other ranks of the node may use the same CPUs (Slurm has bound none, or all to the same).
    bool shared = false;
    // Maps a CPU to its core: equal for its hardware threads, which stay together.
    std::function<uint32_t(uint32_t cpu)> core_of = [](uint32_t cpu) { return cpu; };
};

// Ranks that share CPUs each get the same number of whole cores, and some cores may stay unused; with fewer
// cores than ranks, some ranks share a core. No other ranks overlap. Empty if no allowed CPU is near, or if
// it is unknown what is near: then Slurm's binding stays.
Cpus cpus_of_rank(const CpuFacts& facts);

}  // namespace dp
