// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpus.hpp"

#include <algorithm>
#include <iterator>
#include <map>

namespace dp {

Cpus cpus_of_rank(const CpuFacts& facts) {
    const Cpus& near = facts.near[facts.local_rank];
    Cpus mine;
    std::set_intersection(facts.allowed.begin(), facts.allowed.end(), near.begin(), near.end(),
                          std::back_inserter(mine));
    const auto mates = static_cast<size_t>(std::count(facts.near.begin(), facts.near.end(), near));
    if (mine.empty() || !facts.shared || mates == 1) return mine;
    const auto place =
        static_cast<size_t>(std::count(facts.near.begin(), facts.near.begin() + facts.local_rank, near));

    std::map<uint32_t, Cpus> by_core;
    for (uint32_t cpu : mine) by_core[facts.core_of(cpu)].push_back(cpu);
    const size_t each = by_core.size() / mates;
    const size_t first = each > 0 ? place * each : place % by_core.size();
    mine.clear();
    for (auto core = std::next(by_core.begin(), static_cast<std::ptrdiff_t>(first));
         core != std::next(by_core.begin(), static_cast<std::ptrdiff_t>(first + std::max<size_t>(1, each)));
         ++core)
        mine.insert(mine.end(), core->second.begin(), core->second.end());
    std::sort(mine.begin(), mine.end());
    return mine;
}

}  // namespace dp
