// SPDX-License-Identifier: Apache-2.0
//
// What the step's ranks do with their time, asked of all nodes at once (dpctl top): one round at a time,
// which later askers join. A pure state machine; the broker owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

// A rank's program, in bytes of its name; the rest is cut.
inline constexpr size_t kMaxCommand = 64;
// GPUs of a node, by tile; the rest is cut.
inline constexpr int kMaxGpus = 1024;
// Beyond this many bytes, an answer has nodes without their ranks.
inline constexpr size_t kMaxUsage = size_t{2} << 20;
// How many may wait for a round at once.
inline constexpr size_t kMaxUsageAskers = 256;
// How long a round waits for its nodes.
inline constexpr Time kUsageDeadline{500};

class UsageRounds {
 public:
    struct Asker {
        uint32_t node = 0;
        uint64_t connection = 0;  // the node's own number
        auto operator<=>(const Asker&) const = default;
    };
    struct End {
        std::vector<Asker> askers;
        wire::StepUsage usage;
    };

    // `nodes`: those that can answer. Returns whom to ask; nullopt if too many wait already. A node that owes
    // an earlier answer is not asked again: that one will do.
    std::optional<std::vector<uint32_t>> ask(Asker asker, const std::vector<uint32_t>& nodes, Time now);
    void answer(uint32_t node, const wire::NodeUsage& usage, const Membership& members);
    // Ranks are elsewhere now.
    void forget_answers() { answers_.clear(); }
    // The node has left or is lost, and will not answer.
    void remove(uint32_t node) {
        awaited_.erase(node);
        owing_.erase(node);
    }

    // The round's result, once every node has answered or its time is up. `why_late`: of the others.
    std::optional<End> end(const Membership& members, const std::function<std::string(uint32_t)>& why_late,
                           Time now);
    std::optional<Time> next_deadline() const {
        return askers_.empty() ? std::nullopt : std::optional(deadline_);
    }

 private:
    std::set<Asker> askers_;  // none: no round
    Time deadline_{};
    std::set<uint32_t> awaited_;
    std::set<uint32_t> owing_;  // were asked, in this round or before it
    std::map<uint32_t, wire::NodeUsage> answers_;

    wire::NodeUsage told(uint32_t node, const Membership& members) const;
};

}  // namespace dp
