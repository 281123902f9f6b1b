// SPDX-License-Identifier: Apache-2.0
//
// dp-rendezvousd: one libevent loop that carries events to the engine (Node, and on rank 0's node Broker) and
// performs its actions. Everything with a socket, a signal or a clock is here; every decision is there.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/awake.hpp"
#include "common/daemon_config.hpp"
#include "common/node_setup.hpp"
#include "common/processes.hpp"
#include "engine/broker.hpp"
#include "engine/node.hpp"
#include "loop/broker_link.hpp"
#include "loop/broker_server.hpp"
#include "loop/examiner.hpp"
#include "loop/gpu_probe.hpp"
#include "loop/keeper_server.hpp"
#include "loop/last_words.hpp"
#include "loop/log.hpp"
#include "loop/metrics_server.hpp"
#include "loop/pace.hpp"
#include "loop/rank_server.hpp"
#include "loop/rank_watcher.hpp"
#include "loop/stack_reader.hpp"
#include "loop/step_recorder.hpp"
#include "loop/timer.hpp"
#include "loop/torch_server.hpp"
#include "loop/transports_reader.hpp"
#include "loop/usage.hpp"
#include "record/node_ledger.hpp"

namespace dp {

// How long a leaving daemon waits for its last messages to be taken.
inline constexpr Time kLeaveTimeout{1000};
// How often to look whether what was killed is gone.
inline constexpr Time kClearEvery{2};
// How often to check whether the local ranks are stopped, and the clock.
inline constexpr Time kLookEvery{1000};

class Daemon {
 public:
    // Uses the descriptors of DaemonFd.
    Daemon(const DaemonConfig& config, const std::string& secret);

    // Runs until the last local rank has ended and everybody has been told.
    void run();

 private:
    struct FreeBase {
        void operator()(event_base* b) const { event_base_free(b); }
    };

    // One member per thing with a descriptor or a clock; the engine decides what they do together.
    std::unique_ptr<event_base, FreeBase> base_;
    RejectedPeers rejected_;
    AwakeClock clock_;
    Tasks tasks_;
    BoundPort successor_port_;  // where this relay would take over as the broker
    Node node_;
    const DaemonConfig& config_ = node_.config();
    std::optional<Broker> broker_;

    RankServer ranks_;
    std::optional<KeeperServer> keepers_;  // where tasks tell (Settings::tasks_tell)
    UsageReader usage_;
    PaceReader paces_;  // with --dp-slow
    Time paces_told_{};
    GpuProbe gpus_;           // for dpctl top
    GpuProbe gpus_of_paces_;  // for --dp-slow
    StackReader stacks_;
    std::optional<LastWords> last_words_;         // with --dp-nccl-debug
    std::optional<TransportsReader> transports_;  // likewise
    std::vector<std::string> nccl_files_;         // then, by local rank: of its present process
    std::optional<Examiner> examiner_;            // with --dp-preflight
    std::optional<RankWatcher> watcher_;          // with --dp-hang-timeout
    NodeLedger ledger_;
    std::map<uint32_t, wire::RankStacks::Thread> still_;  // by local rank, what it does (--dp-hang-timeout)
    MetricsServer metrics_;
    std::optional<StepRecorder> recorder_;       // with --dp-record
    std::optional<BrokerServer> broker_server_;  // also of a relay that can be the next broker
    std::optional<BrokerLink> broker_link_;
    std::optional<TorchServer> torch_server_;
    EventPtr control_event_;
    std::vector<EventPtr> signal_events_;
    Timer timer_;
    Timer leave_timer_;
    Timer look_timer_;
    Timer sample_timer_;
    Timer clear_timer_;
    BoundPort master_, coordinator_;  // on rank 0's node
    const std::string secret_;
    Timer relink_timer_;
    std::optional<wire::Roll::Successor> next_link_;  // for that
    uint64_t link_ = 0;  // the number of the present one: what an older one still says is not heard
    bool leaving_ = false;

    // On rank 0's node the two engines use these instead of a socket.
    struct {
        std::deque<wire::FromNode> to_broker;
        std::deque<wire::ToNode> to_node;
        bool delivering = false;
    } mail_;

    Time now() { return clock_.at(steady_now()); }
    void start_broker();
    void start_relay();
    void serve_relays(int socket);
    BrokerLink::Events events_of_link();
    void relink();
    void take_over(const NodeActions& actions);
    void watch_signals();
    void watch_control();
    void read_control_packets();
    void note_nccl_file(const ControlEvent& event);
    void note_environment(const ControlEvent& event);
    void wait_for_tiles();
    void examine_node();

    void make_recorder();
    void start_recording();
    void note_ranks();
    Time sample_pause() const;
    void sample_regularly();
    void sample_end();
    std::vector<SampleReader::Rank> ranks_to_sample();
    void record_hang(const wire::Hang& hang);
    void look_at_ledger();
    wire::NodeMetrics metrics();
    wire::FromNode with_spent(wire::FromNode leave);
    void record_ending();
    void tell_user(const std::string& line);
    void on_broker_message(const wire::ToNode& message);
    void perform(const NodeActions& actions);
    void perform(const BrokerActions& actions);
    void settle();
    void look_at_ranks();
    void watch_ranks();
    void tell_paces();
    void signal_ranks(int number);
    std::set<uint32_t> survivors() const;
    void clear_ranks();
    void serve_torch();
    Try<MasterPorts> renew_ports();
    void send(const std::vector<wire::FromNode>& messages);
    wire::NodeUsage measure(const std::vector<std::optional<ConnectionId>>& connections);
    void read_stacks(const NodeActions::StacksToRead& wanted);
    void read_nccl(const std::vector<NodeActions::NcclToRead>& wanted);
    // 0: it has ended.
    pid_t process_of(uint32_t local, std::optional<ConnectionId> connection);
};

}  // namespace dp
