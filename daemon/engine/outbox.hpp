// SPDX-License-Identifier: Apache-2.0
//
// What a node says to the broker, in the order in which it happened. Hellos wait for each other, and so do
// ends that are no news (goodbyes, exits with code 0), until there is anything else to say; all of it waits
// for the broker. A pure state machine; the node's engine owns it.
#pragma once

#include <optional>
#include <vector>

#include "dp.pb.h"
#include "engine/time.hpp"

namespace dp {

// The ranks of a node begin together, and end together: so long they wait for each other.
inline constexpr Time kHelloBatch{20};
inline constexpr Time kExitBatch{50};

class Outbox {
 public:
    void send(wire::FromNode message);
    void batch_hello(const wire::Hellos::Rank& hello, Time now);
    void batch_exit(wire::FromNode message, Time now);
    // The hellos wait no longer.
    void flush_hellos();

    // The broker is there; `first` is what it hears first.
    void open(wire::FromNode first);
    // It is gone, and hears no more.
    void close();

    void expire(Time now);
    std::optional<Time> next_deadline() const { return earlier(exits_at_, hellos_at_); }
    // What is on its way now; nothing before the broker is there.
    std::vector<wire::FromNode> take();

 private:
    enum class Broker { awaited, there, gone } broker_ = Broker::awaited;
    std::vector<wire::FromNode> ready_;
    std::vector<wire::FromNode> exits_;  // older than the hellos
    std::optional<Time> exits_at_;       // set while there are some; so too below
    wire::Hellos hellos_;
    std::optional<Time> hellos_at_;

    void flush_exits();
};

}  // namespace dp
