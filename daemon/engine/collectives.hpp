// SPDX-License-Identifier: Apache-2.0
//
// Collectives: barriers, unique ids and broadcasts are one thing. Every member of a group arrives; once the
// last has arrived, all are answered at once with the roots' values, in the roots' order. Facts that members
// give about themselves are compared first (preflight.hpp). A pure state machine; the broker owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "dp/dp.h"
#include "engine/answers.hpp"
#include "engine/membership.hpp"
#include "engine/rank_facts.hpp"
#include "engine/time.hpp"

namespace dp {

inline constexpr size_t kMaxGroupName = 255;
// As many unique ids as a value holds.
inline constexpr uint32_t kMaxRoots = DP_MAX_VALUE_BYTES / DP_UNIQUE_ID_BYTES;
inline constexpr size_t kMaxGivenUp = 1024;

class Collectives {
 public:
    explicit Collectives(const Membership& members)
        : members_(members), world_size_(static_cast<uint32_t>(members.ranks().size())) {}

    // Ranks of one node that arrived at a collective.
    std::vector<Answer> arrive(const wire::NodeArrive& arrive, Time now);
    std::vector<Answer> expire(Time now);
    // No later than the next deadline.
    std::optional<Time> next_deadline() const { return next_; }

    // The process that arrived is gone, and the rank may come again: forgets its own calls only.
    void withdraw(uint32_t rank);
    // Tells all that now wait for the rank that it will not come.
    std::vector<Answer> give_up(uint32_t rank);
    // The same, permanently: its task has ended.
    std::vector<Answer> ended(uint32_t rank);

    size_t open() const { return collectives_.size(); }
    // Who waits for whom, for dpctl status; the first `most`.
    void report(wire::StepStatus& status, Time now, size_t most) const;

    // Answers all waiting calls.
    std::vector<Answer> end(wire::Status status, const std::string& why);

 private:
    struct Key {
        std::string group;
        std::vector<uint32_t> members;  // empty: the world
        uint64_t sequence = 0;
        auto operator<=>(const Key&) const = default;
        bool is_same_group(const Key& other) const {
            return group == other.group && members == other.members;
        }
        std::string in_words() const { return "group \"" + printable(group, 60) + "\""; }
    };
    struct Collective {
        std::map<uint32_t, uint64_t> arrived;  // rank -> id of its call
        std::vector<std::string> values;       // of the roots
        Comparison facts;
        Time first{};
        Time deadline{};
    };

    const Membership& members_;
    uint32_t world_size_;
    std::map<Key, Collective> collectives_;
    // Each group's last collective that its members gave up, and why: whoever comes later need not wait.
    std::map<Key, std::string> given_up_;
    std::optional<Time> next_;  // a lower bound of the deadlines
    std::set<uint32_t> ended_;

    size_t expected(const Key& key) const { return key.members.empty() ? world_size_ : key.members.size(); }
    // The rank's place in the group.
    std::optional<uint64_t> place_of(const Key& key, uint32_t rank) const;
    std::optional<Answer> refuse(const Key& key, uint32_t roots, const wire::NodeArrive& arrive) const;
    std::optional<Answer> admit(const Key& key, Collective& collective, const wire::NodeArrive::Rank& rank);
    Answer complete(const Collective& collective) const;
    Answer cannot_meet(const Key& key, const Collective& collective, uint32_t ended) const;
    std::vector<uint32_t> missing(const Key& key, const Collective& collective) const;
    static Answer answer_all(const Collective& collective, wire::Status status, std::string why);
};

}  // namespace dp
