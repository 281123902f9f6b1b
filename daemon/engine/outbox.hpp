// SPDX-License-Identifier: Apache-2.0
//
// A node's messages to the broker, in order; all wait for it. Hellos and harmless ends (goodbyes, exits with
// code 0) wait for each other for a moment, or for anything else. Pure; the node's engine owns it.
#pragma once

#include <optional>
#include <vector>

#include "dp.pb.h"
#include "engine/time.hpp"

namespace dp {

// The ranks of a node begin and end together: this long they wait for each other.
inline constexpr Time kHelloBatch{20};
inline constexpr Time kExitBatch{50};

class Outbox {
 public:
    void send(wire::FromNode message);
    void batch_hello(const wire::Hellos::Rank& hello, Time now);
    void batch_exit(wire::FromNode message, Time now);
    // Nothing so far waits any longer.
    void flush();

    // The broker is connected; `first` is sent first.
    void open(wire::FromNode first);
    // The broker is gone.
    void close();

    void expire(Time now);
    std::optional<Time> next_deadline() const { return flush_at_; }
    // The messages to send now; none before the broker is connected.
    std::vector<wire::FromNode> take();

 private:
    enum class Broker { awaited, there, gone } broker_ = Broker::awaited;
    std::vector<wire::FromNode> messages_;
    size_t ready_ = 0;              // how many of them, from the first on, wait for nothing but the broker
    std::optional<Time> flush_at_;  // set while there are others
};

}  // namespace dp
