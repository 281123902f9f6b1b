// SPDX-License-Identifier: Apache-2.0
//
// --dp-slow: which ranks make the others wait. In a synchronous training all steps take equally long; who is slow is who spends more of
// them on its own (common/phase_page.hpp). Ranks are compared with those that have the same work: their data-parallel group. Pure; the
// broker owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/model_parallel.hpp"
#include "dp.pb.h"
#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

// How often nodes tell how fast their ranks are, and how often these are compared at most.
inline constexpr Time kPacesEvery{5000};
inline constexpr Time kJudgeEvery{1000};
// For how many steps, and for how long, a rank is slow before it is named, and keeps up before that is said.
inline constexpr uint64_t kSlowSteps = 50;
inline constexpr Time kSlowFor{10000};

class SlowRanks {
 public:
    // `percent`: so much more than the median is slow, if it is a part of the step that matters; 0: nobody is.
    SlowRanks(uint32_t percent, ModelParallel sizes) : percent_(percent), sizes_(sizes) {}

    void note(const wire::RankPace& pace);
    void ended(uint32_t rank) { ranks_.erase(rank); }

    // Lines about ranks that are slow, or are so no more; each once.
    std::vector<std::string> take(const Membership& members, Time now);
    // Those that were named.
    uint32_t count() const {
        return static_cast<uint32_t>(
            std::ranges::count_if(ranks_, [](const auto& one) { return one.second.is_slow; }));
    }
    std::optional<Time> next_deadline() const {
        return has_news_ ? std::optional(judged_at_ + kJudgeEvery) : std::nullopt;
    }

 private:
    struct Rank {
        wire::RankPace pace;
        bool is_slow = false;  // as was told
        struct Since {
            uint64_t steps = 0;
            Time at{};
        };
        std::optional<Since> differs_since = {};  // from that
    };
    uint32_t percent_;
    ModelParallel sizes_;
    std::map<uint32_t, Rank> ranks_;
    bool has_news_ = false;
    Time judged_at_{};

    bool is_slower(const Rank& rank, double usual) const;
    std::vector<const wire::RankPace*> alike(uint32_t rank) const;
    std::string times_in_words(const std::vector<uint32_t>& ranks, double usual) const;
    std::string slow_line(const std::vector<uint32_t>& ranks, double usual, const Membership& members) const;
};

}  // namespace dp
