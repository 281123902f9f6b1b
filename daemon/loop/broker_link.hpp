// SPDX-License-Identifier: Apache-2.0
//
// A relay's connection to the broker: tries the step's candidate ports in order, a new one every kStagger or
// as soon as the last was refused, until a peer has proven that it knows the step's secret; others are passed
// over. Repeats, at the pace of search_pace.hpp, until it succeeds or the owner gives up.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "engine/search_pace.hpp"
#include "loop/connection.hpp"
#include "loop/numbered.hpp"

namespace dp {

inline constexpr Time kStagger{20};
// How long to wait at a stranger's port, or one behind a firewall, while the others are tried.
inline constexpr Time kAttemptTimeout{2000};

// Who connects.
struct NodeOfGeneration {
    uint32_t node_rank = 0;
    uint32_t generation = 0;
};

class BrokerLink {
 public:
    struct Events {
        std::function<void(const std::string& own_address)> on_joined;
        std::function<void(const wire::ToNode&)> on_message;
        // After on_joined only. `by_peer`: the broker, or its host, knows.
        std::function<void(const std::string& why, bool by_peer)> on_lost;
        std::function<void(uint32_t protocol)> on_other_version;
        // If given, called when a connection closes before it has joined; if not, the link goes on trying.
        std::function<void()> on_refused = {};
    };

    BrokerLink(event_base* base, const std::vector<std::string>& addresses,
               const std::vector<uint16_t>& ports, std::string secret, NodeOfGeneration node, Events events);

    // Sends at the end of this turn of the loop, so that a turn's messages share a packet.
    void send(const wire::FromNode& message);
    // Sends this turn's messages now.
    void flush();
    // Whether it has joined, and the broker will get all flushed messages whatever becomes of this process.
    bool is_idle() const;
    // Closes after everything has been sent; on_lost comes when the broker has closed, too.
    void finish();

 private:
    struct Target {
        std::string address;
        uint16_t port;
    };
    struct Attempt {
        uint64_t id = 0;
        size_t target = 0;     // place in targets_
        std::string expected;  // the broker's proof, once we have answered its challenge
        std::optional<Connection> connection;
        std::optional<Timer> deadline;
    };

    event_base* base_;
    std::vector<Target> targets_;
    std::string secret_;
    NodeOfGeneration node_;
    Events events_;
    size_t next_target_ = 0;
    SearchPace pace_;
    Numbered<Attempt> attempts_;
    Attempt* joined_ = nullptr;  // the one that won
    std::string unsent_;         // frames
    Timer try_timer_;
    Timer flush_;

    void try_next();
    // False: it is unreachable.
    bool begin(size_t target);
    void on_frame(Attempt& attempt, std::string_view body);
    void on_closed(Attempt& attempt, const std::string& why);
    void answer(Attempt& attempt, std::string_view challenge);
    void join(Attempt& attempt);
    void end(Attempt& attempt);
};

}  // namespace dp
