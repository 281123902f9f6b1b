// SPDX-License-Identifier: Apache-2.0
//
// Who has come to PyTorch's store (--dp-store=torch). PyTorch waits for the last rank for many minutes
// without a word; this says who is missing, by node. Nobody is ended for it: a script may have something else
// to do first, and PyTorch has a deadline of its own. Pure; the broker owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

class TorchArrivals {
 public:
    // How long after the first arrival it is said who is missing; each next time after a pause twice as long.
    explicit TorchArrivals(Time first_pause) : pause_(first_pause) {}

    // A program on the node has opened the store.
    void arrive(uint32_t node, Time now);
    // What is to be said now; empty: nothing.
    std::string notice(const Membership& members, Time now);
    std::optional<Time> next_notice() const { return next_; }

 private:
    std::map<uint32_t, size_t> by_node_;
    Time pause_;
    Time first_{};
    std::optional<Time> next_;  // while somebody may be missing
};

}  // namespace dp
