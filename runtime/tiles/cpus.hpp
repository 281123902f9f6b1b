// SPDX-License-Identifier: Apache-2.0
//
// The CPUs of one rank: those near its tiles, of what Slurm gave it, shared out among the ranks there. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace dp {

using Cpus = std::vector<uint32_t>;  // ascending

struct CpuFacts {
    Cpus allowed;            // to this task
    std::vector<Cpus> near;  // each rank's of the node, by local rank
    uint32_t local_rank = 0;
    // Whether others of the node's ranks may use the same CPUs (Slurm has bound none, or all to the same).
    bool shared = false;
    // Names the core of a CPU: the same for its hardware threads, which stay together.
    std::function<uint32_t(uint32_t cpu)> core_of = [](uint32_t cpu) { return cpu; };
};

// Where ranks near the same CPUs share, each has the same number of whole cores of them, of which some may
// stay unused; where there are fewer cores than ranks, some have the same one. No others overlap. Empty where
// none of the allowed ones is near, or nothing is known of what is near: then Slurm's binding stays.
Cpus cpus_of_rank(const CpuFacts& facts);

}  // namespace dp
