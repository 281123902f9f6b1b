// SPDX-License-Identifier: Apache-2.0
//
// Meetings: barriers, unique ids and broadcasts are one thing. Every member of a group arrives; when the last
// one has come all are answered at once with the root's value. A pure state machine; the broker owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/answers.hpp"
#include "engine/time.hpp"

namespace dp {

inline constexpr size_t kMaxGroupName = 255;

class Meetings {
 public:
    // Tells who is missing and why, in words: "rank 5 on node02 (started, no hello)".
    using Describe = std::function<std::string(std::span<const uint32_t> ranks)>;

    Meetings(uint32_t world_size, Describe describe)
        : world_size_(world_size), describe_(std::move(describe)) {}

    std::vector<Answer> arrive(Caller caller, const wire::Arrive& arrive, Time now, Time timeout);
    std::vector<Answer> expire(Time now);
    std::optional<Time> next_deadline() const;

    // The rank can come no more (it ended): whoever waits for it is told so.
    std::vector<Answer> give_up(uint32_t rank);

    // Answers all that wait, with this.
    std::vector<Answer> end(wire::Status status, const std::string& why);

 private:
    struct Key {
        std::string group;
        std::vector<uint32_t> members;  // empty: the world
        uint64_t sequence = 0;
        auto operator<=>(const Key&) const = default;
    };
    struct Meeting {
        std::map<uint32_t, uint64_t> arrived;  // rank -> id of its call
        std::string value;
        Time first{};
        Time deadline{};
    };

    uint32_t world_size_;
    Describe describe_;
    std::map<Key, Meeting> meetings_;

    size_t expected(const Key& key) const { return key.members.empty() ? world_size_ : key.members.size(); }
    bool is_member(const Key& key, uint32_t rank) const;
    std::vector<uint32_t> missing(const Key& key, const Meeting& meeting) const;
    static Answer fail_all(const Meeting& meeting, wire::Status status, std::string why);
};

}  // namespace dp
