// SPDX-License-Identifier: Apache-2.0
#include "record/detail_schedule.hpp"

#include <utility>

namespace dp {
namespace {

constexpr std::chrono::seconds kFirst{10};
// A step that restarts all the time would otherwise record nothing but first seconds.
constexpr size_t kFirstsAnHour = 3;
constexpr int64_t kFor = 2;
constexpr uint32_t kFew = 64;  // ranks

int64_t pause_of(uint32_t world_size) {
    return world_size <= kFew ? 20 : 300;
}

}  // namespace

bool DetailSchedule::is_on(std::chrono::seconds now, bool has_phases, int64_t unix_s, uint32_t world_size) {
    if (has_phases && !has_phases_) {
        has_phases_ = true;
        std::erase_if(firsts_,
                      [&](std::chrono::seconds first) { return first + std::chrono::hours(1) <= now; });
        if (firsts_.size() < kFirstsAnHour) firsts_.push_back(now);
    }
    return (!firsts_.empty() && now < firsts_.back() + kFirst) || unix_s % pause_of(world_size) < kFor;
}

EndedPhases DetailSchedule::at_sample(std::chrono::seconds now, bool has_phases, int64_t unix_s,
                                      uint32_t world_size, bool is_regular) {
    const bool are_recorded = is_on(now, has_phases, unix_s, world_size);
    if (!is_regular) return are_recorded ? EndedPhases::recorded : EndedPhases::kept;
    if (std::exchange(second_, unix_s) == unix_s) return EndedPhases::kept;
    return are_recorded ? EndedPhases::recorded : EndedPhases::dropped;
}

}  // namespace dp
