// SPDX-License-Identifier: Apache-2.0
//
// Which ranks have opened PyTorch's store (--dp-store=torch). PyTorch waits many minutes for the last rank in
// silence; this says who is missing, by node. Nobody is ended for it: a script may have something else to do
// first, and PyTorch has its own deadline. Pure; the broker owns it.
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
    // The time from the first arrival to the first notice; the pauses between later notices double.
    explicit TorchArrivals(Time first_pause) : pause_(first_pause) {}

    // A program on the node has opened the store.
    void arrive(uint32_t node, Time now);
    // The notice that is due now; empty: none.
    std::string notice(const Membership& members, Time now);
    std::optional<Time> next_notice() const { return next_; }

 private:
    std::map<uint32_t, size_t> by_node_;
    Time pause_;
    Time first_{};
    std::optional<Time> next_;  // while somebody may be missing
};

}  // namespace dp
