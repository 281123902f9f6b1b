// SPDX-License-Identifier: Apache-2.0
//
// The broker of a step: one on rank 0's node, talking to every node of the step (its own too). A pure state
// machine: events in, actions out; the loop (or a test, or the fuzzer) delivers both and no socket has
// touched it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dp.pb.h"
#include "engine/ending.hpp"
#include "engine/meetings.hpp"
#include "engine/membership.hpp"
#include "engine/store.hpp"
#include "engine/time.hpp"
#include "engine/vouching.hpp"

namespace dp {

// How long the broker stays for other nodes after its own node's last rank has ended.
inline constexpr Time kBrokerLinger{3000};
// When waiting ranks are first told whom they wait for, and how often after that.
inline constexpr Time kFirstLateNotice{10000};
inline constexpr Time kLateNoticeEvery{30000};

// A connection that closed without goodbye is most often a death whose exit code is still on its way: this
// long it may take until calls that wait for the rank fail without it.
inline constexpr Time kExitFollows{500};

struct BrokerConfig {
    uint32_t world_size = 0;
    uint32_t own_node = 0;
    std::vector<std::string> hosts;  // by node rank; may be empty
    uint32_t nodes = 0;
    std::string master_addr;
    uint16_t master_port = 0;
    uint16_t coordinator_port = 0;
    bool report_failures = false;  // --dp-on-failure=report: name the dead, end nobody
    Time timeout{};
    bool want_table = false;
    uid_t owner = 0;  // the step's user
};

struct BrokerActions {
    std::vector<std::pair<uint32_t, wire::ToNode>> sends;  // node rank, message
    std::vector<uint32_t> refused;            // nodes whose join was refused: close the connection
    std::vector<Vouching::Verdict> verdicts;  // on connections of on_connection
    std::vector<std::string> log;             // lines for the user's standard error
};

class Broker {
 public:
    Broker(BrokerConfig config, Time now);

    // A message of a node that has proven itself.
    BrokerActions on_message(uint32_t node, const wire::FromNode& message, Time now);
    // Its connection closed. Expected after Leave; otherwise the node is lost.
    BrokerActions on_lost(uint32_t node, const std::string& why, Time now);
    // Somebody has connected to a port that only the step's user may use; `connection` is the caller's own
    // number. The verdict comes with these actions or with later ones, within kVouchDeadline.
    BrokerActions on_connection(uint64_t connection, const SocketEnds& ends, Time now);
    BrokerActions tick(Time now);
    std::optional<Time> next_deadline() const;

    // Nothing is left to do: every node has left, or the broker stayed its time.
    bool finished() const { return finished_; }

    const Membership& membership() const { return members_; }

 private:
    BrokerConfig config_;
    Membership members_;
    Store store_;
    Meetings meetings_;
    Vouching vouching_;
    BrokerActions out_;

    Time started_;
    std::optional<Time> first_hello_;
    std::optional<Time> next_notice_;
    std::optional<Time> leave_at_;
    bool plan_sent_to_own_ = false;
    bool aborted_ = false;
    bool finished_ = false;
    std::string abort_reason_;
    // Causes that may turn out to be the step's own end, oldest first; see ending.hpp.
    struct Suspicion {
        std::string reason;
        Patience patience;
        Time until;
        std::vector<uint32_t> ranks;  // who is dead then
    };
    std::deque<Suspicion> suspicions_;
    std::set<uint32_t> ended_;           // ranks whose task has exited
    std::map<uint32_t, Time> vanished_;  // until when their exit may follow, by rank

    BrokerActions take();
    void send(uint32_t node, wire::ToNode message);
    void to_all(const wire::ToNode& message);
    void deliver(const std::vector<Answer>& answers);
    void join(uint32_t node, const wire::Join& join);
    void rank_event(uint32_t node, const wire::RankEvent& event, Time now);
    void request(uint32_t node, const wire::NodeRequest& request, Time now);
    void abort(const std::string& reason, Patience patience);
    void died(uint32_t rank, int wait_status, Time now);
    void dead(const std::string& reason, Patience patience, const std::vector<uint32_t>& ranks);
    void forget_node(uint32_t node);
    void own_node_left(Time now);
    void check_arrivals(Time now);
    std::string where(uint32_t rank) const;
};

}  // namespace dp
