// SPDX-License-Identifier: Apache-2.0
//
// --dp-nccl-debug: which of its ranks' last NCCL warnings the broker prints: those of ranks that a line about a death or a hang has
// named. The line does not wait for them. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "dp.pb.h"

namespace dp {

// Of one death or hang: what a broken network makes all ranks say is not printed a thousand times.
inline constexpr size_t kMostNcclWarnings = 3;
// Of one warning with its time and file, in bytes; the rest is cut.
inline constexpr size_t kMaxNcclWarning = 800;

class NcclWarnings {
 public:
    // By generation and rank.
    using Ranks = std::map<std::pair<uint32_t, uint32_t>, std::string>;

    // A line has named these ranks, all of one generation, as "rank 2 on node02".
    void name(const Ranks& ranks) {
        if (ranks.empty()) return;
        const uint32_t last = std::max(ranks.begin()->first.first, 1u) - 1;
        for (Ranks* old : {&named_, &said_}) old->erase(old->begin(), old->lower_bound({last, 0}));
        for (const auto& [rank, who] : ranks) named_[rank] = who;
        left_ = kMostNcclWarnings;
    }
    // What its node has found; perhaps before the rank is named, perhaps in the next generation.
    void note(const wire::NcclWarning& warning) {
        said_[{warning.generation(), warning.rank()}] = printable(warning.text(), kMaxNcclWarning);
    }
    // The lines to print.
    std::vector<std::string> take() {
        std::vector<std::string> lines;
        for (auto said = said_.begin(); said != said_.end();) {
            const auto named = named_.extract(said->first);
            if (named) lines.push_back(named.mapped() + ": last NCCL warning " + said->second);
            said = named ? said_.erase(said) : std::next(said);
            if (lines.size() < left_) continue;
            named_.clear();
            break;
        }
        left_ -= lines.size();
        return lines;
    }

 private:
    Ranks named_;
    Ranks said_;
    size_t left_ = 0;
};

}  // namespace dp
