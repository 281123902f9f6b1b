// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpus.hpp"

#include <algorithm>
#include <iterator>
#include <map>

namespace dp {
namespace {

// The local ranks to which a CPU is near.
std::vector<uint32_t> ranks_near(uint32_t cpu, const std::vector<Cpus>& near) {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < near.size(); ++rank)
        if (std::binary_search(near[rank].begin(), near[rank].end(), cpu)) ranks.push_back(rank);
    return ranks;
}

}  // namespace

Cpus cpus_of_rank(const CpuFacts& facts) {
    const Cpus& near = facts.near[facts.local_rank];
    Cpus mine;
    std::set_intersection(facts.allowed.begin(), facts.allowed.end(), near.begin(), near.end(),
                          std::back_inserter(mine));
    if (!facts.shared) return mine;

    // CPUs near the same ranks are divided among them; a rank near two NUMA nodes gets its part of each.
    std::map<std::vector<uint32_t>, std::map<uint32_t, Cpus>> by_ranks_and_core;
    for (uint32_t cpu : mine)
        by_ranks_and_core[ranks_near(cpu, facts.near)][facts.core_of(cpu)].push_back(cpu);
    mine.clear();
    for (const auto& [ranks, cores] : by_ranks_and_core) {
        const auto place =
            static_cast<size_t>(std::find(ranks.begin(), ranks.end(), facts.local_rank) - ranks.begin());
        const size_t each = cores.size() / ranks.size();
        const size_t first = each > 0 ? place * each : place % cores.size();
        auto core = std::next(cores.begin(), static_cast<std::ptrdiff_t>(first));
        for (size_t i = 0; i < std::max<size_t>(1, each); ++i, ++core)
            mine.insert(mine.end(), core->second.begin(), core->second.end());
    }
    std::sort(mine.begin(), mine.end());
    return mine;
}

}  // namespace dp
