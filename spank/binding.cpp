// SPDX-License-Identifier: Apache-2.0
//
// A task's CPUs and memory near its tiles (tiles.hpp).
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "common/hostlist.hpp"
#include "tiles.hpp"
#include "tiles/cpus.hpp"
#include "tiles/sysfs.hpp"

namespace dp::plugin {
namespace {

// A mask of all CPUs that Linux can have, as the kernel refuses a short one (cpu_set_t ends at 1024).
using Word = unsigned long;
constexpr size_t kBits = 8 * sizeof(Word);
using Mask = std::array<Word, (1 << 13) / kBits>;

Cpus cpus_of_numa_here(uint32_t node) {
    return cpus_of_numa("", node);
}

// The core of a CPU: its lowest hardware thread.
uint32_t core_of(uint32_t cpu) {
    const Cpus threads =
        read_cpu_list("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    return threads.empty() ? cpu : threads.front();
}

bool bind_to(const Cpus& cpus) {
    Mask mask = {};
    for (uint32_t cpu : cpus) mask.at(cpu / kBits) |= Word{1} << (cpu % kBits);
    return syscall(SYS_sched_setaffinity, 0, sizeof mask, mask.data()) == 0;
}

// Prefers memory of the NUMA node near all of the rank's devices, if there is one; never demands it. The C
// library has no call for it: set_mempolicy(2).
void prefer_memory(const TileInventory& inventory, const Tiles& own) {
    std::optional<uint32_t> numa;
    for (uint32_t device : inventory.devices_of(own)) {
        const auto here = inventory.devices[device].numa;
        if (!here || (numa && numa != here)) return;
        numa = here;
    }
    constexpr uint32_t kMostNodes = 1024;
    if (!numa || *numa >= kMostNodes) return;
    Word nodes[kMostNodes / kBits] = {};
    nodes[*numa / kBits] = Word{1} << (*numa % kBits);
    syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, kMostNodes);
}

}  // namespace

Cpus allowed_cpus() {
    Mask mask;
    Cpus cpus;
    const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask.data());
    for (size_t word = 0; bytes > 0 && word < static_cast<size_t>(bytes) / sizeof(Word); ++word)
        for (Word left = mask[word]; left != 0; left &= left - 1)
            cpus.push_back(static_cast<uint32_t>(word * kBits + static_cast<size_t>(std::countr_zero(left))));
    return cpus;
}

std::vector<Cpus> near_of_shares(const TileInventory& inventory, const std::vector<Tiles>& shares) {
    std::vector<Cpus> near;
    near.reserve(shares.size());
    for (const Tiles& share : shares) near.push_back(cpus_near(inventory, share, cpus_of_numa_here));
    return near;
}

std::optional<std::string> bind_near_tiles(const StepFacts& step, const NodeTiles& tiles,
                                           const TilePlan& plan, uint32_t local_rank) {
    prefer_memory(tiles.inventory, plan.own);
    // If Slurm has bound each task to tiles of its own, assume that the others' are near the same CPUs.
    const bool alone = plan.by_task || !tiles.shares;
    const Cpus near =
        alone ? cpus_near(tiles.inventory, plan.own, cpus_of_numa_here) : tiles.near[local_rank];
    if (near.empty()) return std::nullopt;  // the site does not say
    CpuFacts facts;
    facts.near = alone ? std::vector<Cpus>(step.ranks.size(), near) : tiles.near;
    facts.allowed = allowed_cpus();
    facts.local_rank = local_rank;
    // A task bound to more than its part of the step's CPUs here shares them with the step's other tasks. If
    // it may use even more than those, Slurm confines nobody, and it is unknown what other jobs use.
    facts.shared = facts.allowed.size() * facts.near.size() > step.cpus && facts.allowed.size() <= step.cpus;
    facts.core_of = core_of;
    const Cpus mine = cpus_of_rank(facts);
    const bool first_of_them =
        std::find(facts.near.begin(), facts.near.end(), near) - facts.near.begin() == local_rank;
    if (!mine.empty()) {
        if (bind_to(mine) || !first_of_them) return std::nullopt;
        return "node " + step.host + ": cannot bind rank " + std::to_string(step.ranks[local_rank]) +
               " to CPUs " + compress_ranks(mine) + ": " + std::strerror(errno) +
               "; its binding stays as it was";
    }
    if (!first_of_them) return std::nullopt;
    return "node " + step.host + ": the tiles of rank " + std::to_string(step.ranks[local_rank]) +
           " are near CPUs " + compress_ranks(near) + ", but Slurm gave it CPUs " +
           compress_ranks(facts.allowed) +
           ", and it stays there; with srun --distribution=block:block ranks follow the sockets as tiles do";
}

}  // namespace dp::plugin
