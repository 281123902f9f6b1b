// SPDX-License-Identifier: Apache-2.0
//
// --dp-hang-timeout: whether the step hangs, and which rank is the cause. Nodes tell of each rank that has not moved for the
// timeout (stacks/stillness.hpp); the step hangs once that holds for every rank that lives. Ranks in a collective look alike: the
// cause is who is not in it. Where they do not tell, nobody is accused. Pure; the broker owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

// What a rank's node says of where it is, in bytes; the rest is cut.
inline constexpr size_t kMaxWhere = 200;

class HangWatch {
 public:
    void note(uint32_t rank, const wire::Stillness& said, Time now);
    // If that ends a hang of which take() has told: how long it lasted.
    std::optional<Time> moves(uint32_t rank, Time now);
    // The present one, of which take() has told.
    Time lasts(Time now) const { return hangs_since_ ? now - *hangs_since_ : Time(0); }
    // It has ended, which is progress, and the others may do so, too; or what is left of the step hangs without it.
    void ended(uint32_t rank, Time now) {
        still_.erase(rank);
        last_end_ = now;
        is_judged_later_ = true;
    }

    struct Hang {
        std::string reason;
        std::vector<uint32_t> culprits;  // ascending; none: it cannot be told
    };
    // Each hang once. `timeout`: that of the nodes.
    std::optional<Hang> take(const Membership& members, Time timeout, Time now);
    std::optional<Time> next_deadline(Time timeout) const {
        return is_judged_later_ && !still_.empty() ? std::optional(last_end_ + timeout) : std::nullopt;
    }

 private:
    struct Still {
        Time since{};
        bool waits_for_others = false;
        std::string where;
        uint64_t place = 0;
    };
    std::map<uint32_t, Still> still_;
    Time last_end_ = Time::min();
    bool is_judged_later_ = false;     // because of that
    std::optional<Time> hangs_since_;  // told

    std::vector<uint32_t> alike(const std::vector<uint32_t>& ranks) const;
    std::string places_of(const std::vector<uint32_t>& ranks, const Membership& members) const;
};

}  // namespace dp
