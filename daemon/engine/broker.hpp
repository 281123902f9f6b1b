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
#include "engine/heartbeats.hpp"
#include "engine/meetings.hpp"
#include "engine/membership.hpp"
#include "engine/parts.hpp"
#include "engine/store.hpp"
#include "engine/time.hpp"
#include "engine/torch_arrivals.hpp"
#include "engine/usage.hpp"
#include "engine/vouching.hpp"

namespace dp {

// How long the broker stays for other nodes after its own node's last rank has ended.
inline constexpr Time kBrokerLinger{3000};
// Missing ranks are named this long after the first sign of life; the pauses between later notices double.
inline constexpr Time kFirstLateNotice{5000};

// What dpctl status is told of the meetings that somebody waits in.
inline constexpr size_t kMaxMeetingsTold = 16;
// A status over this many bytes is told without the single ranks.
inline constexpr size_t kMaxStatus = size_t{2} << 20;

// Ranks that are stopped at about the same time are named together.
inline constexpr Time kStoppedTogether{100};

// Deaths that follow a first one are told together, so often (--dp-on-failure=report).
inline constexpr Time kDeathsTogether{50};

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
    uid_t owner = 0;                                                   // the step's user
    Time dead_after = std::chrono::seconds(kDefaultDeadAfterSeconds);  // of a silent node
};

struct BrokerActions {
    std::vector<std::pair<uint32_t, Parts<wire::ToNode>>> sends;  // node rank, message
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
    // A program on the node, whose connection was let in, has opened PyTorch's store.
    BrokerActions on_torch_arrival(uint32_t node, Time now);
    BrokerActions tick(Time now);
    std::optional<Time> next_deadline() const;

    // Nothing is left to do: every node has left, or the broker stayed its time.
    bool finished() const { return finished_; }

    // The step is being ended, and there is a node whose ranks its daemon cannot end: it was lost or stands
    // still, or its launcher was killed, without which Slurm waits for ever.
    bool leaves_ranks_behind() const { return aborted_ && node_is_gone_; }

    const Membership& membership() const { return members_; }

 private:
    BrokerConfig config_;
    Membership members_;
    Store store_;
    Meetings meetings_;
    Vouching vouching_;
    TorchArrivals torch_arrivals_{kFirstLateNotice};
    Heartbeats heartbeats_;
    UsageRounds usage_;
    BrokerActions out_;

    Time started_;
    std::optional<Time> first_hello_;
    Time next_notice_, notice_pause_ = kFirstLateNotice;
    std::optional<Time> leave_at_;
    bool plan_sent_ = false;
    bool aborted_ = false;
    bool finished_ = false;
    bool node_is_gone_ = false;
    std::string abort_reason_;
    std::vector<uint32_t> abort_dead_;
    // Causes that may turn out to be the step's own end, oldest first; see ending.hpp.
    struct Suspicion {
        std::string reason;
        Patience patience;
        Time until;
        std::vector<uint32_t> ranks;  // who is dead then
    };
    std::deque<Suspicion> suspicions_;
    std::map<uint32_t, Time> vanished_;                // until when their exit may follow, by rank
    std::deque<std::pair<Time, uint32_t>> vanishing_;  // the same in order, also of those that are no longer
    // Ranks that were stopped, or go on; not said yet.
    std::vector<uint32_t> stopped_;
    std::vector<uint32_t> continued_;
    std::optional<Time> say_stopped_at_;
    // With --dp-on-failure=report.
    wire::Deaths untold_;
    size_t untold_causes_ = 0;
    wire::Deaths all_deaths_;  // for nodes that come later
    Time quiet_until_{};

    BrokerActions take();
    void send(uint32_t node, wire::ToNode message);
    void to_all(wire::ToNode message);
    void deliver(const std::vector<Answer>& answers);
    void join(uint32_t node, const wire::Join& join, Time now);
    void send_plan();
    void rank_event(uint32_t node, const wire::RankEvent& event, Time now);
    void hellos(uint32_t node, const wire::Hellos& hellos, Time now);
    void arrival(uint32_t node, wire::NodeArrive arrive, Time now);
    bool is_on(uint32_t rank, uint32_t node) const;
    void request(uint32_t node, const wire::NodeRequest& request, Time now);
    wire::Abort abort_message(Patience patience) const;
    void abort(const std::string& reason, Patience patience, const std::vector<uint32_t>& dead = {});
    void died(const wire::RankEvent& exit, Time now);
    void tell_suspicions(size_t count, Time now);
    void dead(const std::string& reason, Patience patience, const std::vector<uint32_t>& ranks, Time now);
    void tell_deaths(Time now);
    void forget_node(uint32_t node);
    void own_node_left(Time now);
    void finish_if_nobody_is_here();
    void check_arrivals(Time now);
    void await(const std::string& there, Time since, std::span<const uint32_t> late, Time now);
    bool complete() const;
    void check_heartbeats(Time now);
    void lose(uint32_t node, const std::string& why, Time delay, Time now);
    std::string named(std::span<const uint32_t> nodes) const;
    void say(const SilenceNotices::Notice& notice);
    void say_who_stands_still();
    void say_stopped(const std::vector<uint32_t>& ranks, const std::string& what);
    wire::StepStatus status(bool summary, Time now) const;
    void ask_usage(UsageRounds::Asker asker, Time now);
    void tell_usage(Time now);
    std::string why_not_measured(uint32_t node, Time now) const;
    std::string where(uint32_t rank) const;
};

}  // namespace dp
