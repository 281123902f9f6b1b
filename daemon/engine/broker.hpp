// SPDX-License-Identifier: Apache-2.0
//
// The broker of a step, on rank 0's node, connected to every node of the step (including its own). A pure
// state machine: events in, actions out; the loop (or a test, or the fuzzer) delivers both.
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

#include "common/daemon_config.hpp"
#include "dp.pb.h"
#include "engine/collectives.hpp"
#include "engine/deaths.hpp"
#include "engine/ending.hpp"
#include "engine/hang_watch.hpp"
#include "engine/heartbeats.hpp"
#include "engine/membership.hpp"
#include "engine/nccl_warnings.hpp"
#include "engine/node_preflight.hpp"
#include "engine/notices.hpp"
#include "engine/peer_authorization.hpp"
#include "engine/quorum.hpp"
#include "engine/restarts.hpp"
#include "engine/shared_message.hpp"
#include "engine/slow_ranks.hpp"
#include "engine/stack_questions.hpp"
#include "engine/start_deadlines.hpp"
#include "engine/step_transports.hpp"
#include "engine/store.hpp"
#include "engine/succession.hpp"
#include "engine/time.hpp"
#include "engine/torch_arrivals.hpp"
#include "engine/usage.hpp"
#include "record/spent.hpp"

namespace dp {

// How long the broker stays for other nodes after its own node's last rank has ended.
inline constexpr Time kBrokerLinger{3000};
// By how much a rank's hello may have been slower than the calls that followed it.
inline constexpr Time kHelloDelay{250};

struct BrokerActions {
    std::vector<std::pair<uint32_t, SharedMessage<wire::ToNode>>> sends;  // node rank, message
    std::vector<uint32_t> refused;                       // nodes whose join was refused: close the connection
    std::vector<PeerAuthorization::Decision> decisions;  // on connections of on_connection
    std::vector<std::string> log;                        // lines for the user's standard error
    bool renew_ports = false;  // hold others, empty PyTorch's store, and tell on_ports
};

// Of rank 0's node.
struct MasterPorts {
    uint16_t master = 0;
    uint16_t coordinator = 0;
};

class Broker {
 public:
    // `owner`: the step's user.
    Broker(DaemonConfig config, uid_t owner, Time now);
    // An elected one (election.hpp). `config` is this node's in the last broker's generation, with `broker` set.
    Broker(DaemonConfig config, uid_t owner, Succession succession, Time now);

    // A message from a node that has proven itself.
    BrokerActions on_message(uint32_t node, const wire::FromNode& message, Time now);
    // Its connection closed. Expected after Leave; otherwise the node is lost.
    BrokerActions on_lost(uint32_t node, const std::string& why, Time now);
    // Somebody connected to a port that only the step's user may use. The decision comes with these actions
    // or with later ones, within kAuthorizationDeadline.
    BrokerActions on_connection(const wire::WhoOwns& asked, Time now);
    // A program on the node, whose connection was accepted, has opened PyTorch's store.
    BrokerActions on_torch_arrival(uint32_t node, Time now);
    // The ports of the next generation.
    BrokerActions on_ports(const Try<MasterPorts>& ports, Time now);
    BrokerActions tick(Time now);
    std::optional<Time> next_deadline() const;

    // Whether another node is the broker now.
    bool has_resigned() const { return has_resigned_; }
    // Whether nothing is left to do: every node has left, or the broker has stayed long enough.
    bool finished() const { return finished_; }

    // Whether the step is being ended and there is a node whose ranks its daemon cannot end: it was lost or
    // is frozen, or its launcher was killed, without which Slurm waits forever. (Another part of the step may go on
    // without this one.)
    bool leaves_ranks_behind() const { return abort_ && node_is_gone_ && !has_lost_quorum_; }

    const Membership& membership() const { return members_; }
    // `summary`: the counts and the silent nodes only.
    wire::StepStatus status(bool summary, Time now) const;

 private:
    // Each part answers one question and is tested by itself; the rest is below.
    DaemonConfig config_;
    Time started_;
    Membership members_;
    Heartbeats heartbeats_;
    PeerAuthorization authorization_;
    UsageRounds usage_;
    StackQuestions stacks_;
    HeldDeaths held_deaths_;
    DeathReports death_reports_;
    NcclWarnings nccl_warnings_;
    StepTransports transports_;
    RestartPolicy restart_policy_;

    // What begins anew with each generation.
    struct Generation {
        Generation(uint32_t n, const Membership& members, const Settings& settings, Time now)
            : number(n),
              start_deadlines(settings.timeout(), now),
              collectives(members),
              slow_ranks(settings.slow_percent.value_or(0),
                         settings.sizes(static_cast<uint32_t>(members.ranks().size()))) {}
        uint32_t number;
        StartDeadlines start_deadlines;
        Store store;
        Collectives collectives;
        TorchArrivals torch_arrivals{kFirstLateNotice};
        VanishedRanks vanished;
        StoppedRanks stopped;
        HangWatch hang_watch;
        SlowRanks slow_ranks;
        std::string replaced;  // as in the plan
        // Ranks whose processes are older than the failure that began it; nullopt: none did.
        std::optional<std::set<uint32_t>> survivors;
        std::optional<wire::StepStatus::Restart::FirstStep> first_step;
        bool done = false;  // all its ranks have ended, and the nodes know it
    };
    std::optional<Generation> generation_;  // always there; an optional, as its parts cannot be assigned
    MasterPorts ports_;
    std::map<uint32_t, Time> told_to_end_;            // ranks, when; in this generation or the last one
    std::optional<Restart> restart_;                  // under way
    NcclWarnings::Ranks restart_names_;               // whom its line will name
    std::deque<wire::StepStatus::Restart> restarts_;  // that are done, the last ones
    StepsRepeated steps_repeated_;                    // across generations, until one takes a step

    wire::StepStatus::Totals totals_;
    SpentTimes spent_{};        // with --dp-record, by the tasks of nodes that have left
    uint32_t nodes_spent_ = 0;  // how many these are

    bool plan_sent_ = false;
    std::optional<NodePreflight> preflight_;    // with --dp-preflight, before the plan
    std::optional<Quorum> quorum_;              // where the step outlives its nodes
    uint32_t roll_ = 0;                         // the number of the last one
    std::optional<SuccessionWait> succession_;  // until the first generation of an elected broker

    std::optional<wire::Abort> abort_;  // while the step is being ended
    bool node_is_gone_ = false;
    bool has_lost_quorum_ = false;        // most nodes may have lost this broker
    std::optional<Time> quorum_lost_at_;  // when the step ends because of that
    std::optional<Time> aborted_at_;      // at the latest
    bool abort_is_known_ =
        false;  // so many nodes have heard that the step ends that the others can elect nobody
    bool late_before_ = false;   // the last heartbeat
    bool has_resigned_ = false;  // it says nothing any more
    std::optional<Time> leave_at_;
    bool finished_ = false;
    BrokerActions out_;

    BrokerActions take();
    void send(uint32_t node, wire::ToNode message);
    void to_all(const wire::ToNode& message);
    void deliver(const std::vector<Answer>& answers);
    bool is_of_another_generation(const wire::FromNode& message) const;
    void join(uint32_t node, const wire::Join& join, Time now);
    bool is_awaited(uint32_t node, const wire::Join& join) const;
    void begin_if_fit(Time now);
    bool replace_unfit(const Fitness& fitness, Time now);
    void send_plan(Time now);
    wire::Roll next_roll(Time now);
    void alive(uint32_t node, const wire::Alive& said, Time now);
    wire::Alive heartbeat(uint32_t node, Time held, Time now) const;
    void send_heartbeats(Time now);
    void check_quorum(Time delay, Time now);
    void note_abort_known(Time now);
    void check_succession(Time now);
    void take_over(Time now);
    void end_without_quorum(Time now);
    bool can_resign(Time now) const;
    void rank_event(uint32_t node, const wire::RankEvent& event, Time now);
    void hellos(uint32_t node, const wire::Hellos& hellos, Time now);
    void arrival(uint32_t node, wire::NodeArrive arrive, Time now);
    bool is_on(uint32_t rank, uint32_t node) const;
    // Those of `ranks` that are on the node.
    std::vector<uint32_t> of_node(const google::protobuf::RepeatedField<uint32_t>& ranks,
                                  uint32_t node) const;
    void request(uint32_t node, const wire::NodeRequest& request, Time now);
    void leave(uint32_t node, const wire::Leave& said, Time now);
    void finish();
    void fault(uint32_t node, const std::string& why, Time now);
    void expire_vanished(Time now);
    void farewell(Time now);
    const std::string& abort_reason() const {
        return abort_ ? abort_->reason() : wire::Abort::default_instance().reason();
    }
    void abort(const Death& cause, bool is_told = false);
    void refuse(const std::string& why);
    void died(const wire::RankEvent& exit, Time now);
    void dead(const std::vector<Death>& held, Time now);
    void dead(const Death& death, Time now);
    void count(const Death& death);
    void end_generation(const Death& cause, Time now);
    void generation_ended(uint32_t node, const wire::GenerationEnded& ended);
    void renew_if_all_ended(bool all_ended);
    void begin_generation(Time now);
    std::set<uint32_t> survivors_of_failure(const std::vector<uint32_t>& replaced, uint32_t size) const;
    void restart_done(Time now);
    void note_first_step(uint64_t step, Time now);
    void tell_first_step();
    void check_restart(Time now);
    std::string change(const NextWorld& world) const;
    void told_to_end(uint32_t rank, Time now);
    bool all_told_to_end(Time now) const;
    // Whether its ranks are being ended, for good or for the next generation.
    bool is_ending() const { return abort_ || (restart_ && restart_->is_ending()); }
    void finish_world();
    void tell_deaths(Time now);
    void check_hang(Time now);
    void tell_observations(Time now);
    void ask_nccl(const std::vector<uint32_t>& culprits);
    NcclWarnings::Ranks named(const std::vector<uint32_t>& ranks) const;
    void forget_node(uint32_t node);
    void finish_if_nobody_is_here();
    bool ends_soon_after(Time at) const;
    void check_heartbeats(Time now);
    void lose(uint32_t node, const std::string& reason, Time delay, Time now);
    void say(const SilenceNotices::Notice& notice);
    void say(const StoppedRanks::Notice& notice);
    void ask_usage(UsageRounds::Asker asker, Time now);
    void tell_usage(Time now);
    void ask_stacks(uint32_t node, const wire::AskStacks& asked, Time now);
    void tell_stacks(const StackQuestions::Asker& asker, wire::StepStacks stacks);
    // Whoever waits for something whose time has come.
    void tell_askers(Time now);
    std::vector<uint32_t> nodes_here() const;
    std::string why_not_measured(uint32_t node, Time now) const;
    std::string where(uint32_t rank) const;
};

}  // namespace dp
