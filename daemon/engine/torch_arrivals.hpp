// SPDX-License-Identifier: Apache-2.0
//
// Which ranks have opened PyTorch's store (--dp-store=torch). PyTorch waits many minutes for the last rank in
// silence; this says who is missing, by node. Nobody is ended for it: a script may have something else to do
// first, and PyTorch has its own deadline. Pure; the broker owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

class TorchArrivals {
 public:
    // The time from the first arrival to the first notice; the pauses between later notices double.
    explicit TorchArrivals(Time first_pause) : pause_(first_pause) {}

    // A program on the node has opened the store.
    void arrive(uint32_t node, Time now) {
        if (by_node_.empty()) {
            first_ = now;
            next_ = now + pause_;
        }
        ++by_node_[node];
    }
    // The notice that is due now; empty: none.
    std::string notice(const Membership& members, Time now) {
        if (!next_ || now < *next_) return "";
        next_.reset();
        size_t there = 0;
        std::string missing;
        for (uint32_t number = 0; number < members.nodes().size(); ++number) {
            const Membership::Node& node = members.nodes()[number];
            // A rank that has ended is not waited for, and it is unknown whether it had come.
            const auto has_ended = [&](uint32_t rank) { return members.ranks()[rank].has_exited(); };
            if ((node.lost && !node.ranks.empty()) || std::ranges::any_of(node.ranks, has_ended)) return "";
            const size_t here = std::min(by_node_[number], node.ranks.size());
            there += here;
            if (here == node.ranks.size()) continue;
            missing += (missing.empty() ? "" : "; ") + node.host + ": ";
            if (here > 0) missing += std::to_string(node.ranks.size() - here) + " of ";
            missing += name_ranks(node.ranks);
        }
        if (missing.empty()) return "";
        next_ = now + (pause_ *= 2);
        return std::to_string(there) + " of " + plural(members.ranks().size(), "rank") +
               " have opened PyTorch's store after " + words(now - first_) + "; missing: " + missing;
    }
    std::optional<Time> next_notice() const { return next_; }

 private:
    std::map<uint32_t, size_t> by_node_;
    Time pause_;
    Time first_{};
    std::optional<Time> next_;  // while somebody may be missing
};

}  // namespace dp
