// SPDX-License-Identifier: Apache-2.0
//
// A node's part of the daemon, the same on every node, also the broker's: it serves the local ranks, watches
// their launcher, and passes on to the broker what matters. A pure state machine, like the broker.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/control.hpp"
#include "common/plan_file.hpp"
#include "dp.pb.h"
#include "engine/election.hpp"
#include "engine/ending.hpp"
#include "engine/heartbeats.hpp"
#include "engine/local_ranks.hpp"
#include "engine/outbox.hpp"
#include "engine/pending_arrivals.hpp"
#include "engine/restarts.hpp"
#include "engine/shared_message.hpp"
#include "engine/succession.hpp"
#include "engine/survivors.hpp"
#include "engine/time.hpp"

namespace dp {

// How many nodes report what all of them know: more than one, because some may be gone, too.
inline constexpr uint32_t kReporters = 3;

// What only the node itself can tell.
struct NodeFacts {
    std::vector<std::string> addresses;  // numeric; needed with --dp-store=torch alone
    bool own_stderr = false;  // standard error is this node's own file, where the broker's lines do not come
    uint16_t port = 0;        // at which it can be the broker after a lost one
};

// Whether dpctl or a reader of the metrics asks, and the broker answers; else the message is a rank's.
inline bool is_query(const wire::FromRank& message) {
    return message.has_status() || message.has_usage() || message.has_stacks();
}

struct NodeActions {
    std::vector<std::pair<ConnectionId, SharedMessage<wire::ToRank>>> to_ranks;
    std::vector<ConnectionId> close;  // after what is sent to them
    // To queries. Close the connection afterwards; who asks for usage may ask again.
    std::vector<std::pair<ConnectionId, wire::ToRank>> answers;
    std::vector<wire::FromNode> to_broker;
    std::vector<wire::FromNode> news;  // with --dp-record, of ranks: record it
    std::optional<wire::Hang> hang;    // likewise, with what the ranks were found to do
    std::optional<NodePlan> plan;      // publish it
    // Publish that there is none, and why; "": the user is told elsewhere.
    std::optional<std::string> no_plan;
    // Send this signal to the step's processes on this node; where there are keepers, SIGTERM to their ranks' process
    // groups and SIGKILL to all that descends from them, except from those of survivors (Node::survives).
    std::optional<int> signal_ranks;
    std::vector<uint32_t> kill_ranks;  // these local ranks alone
    // With keepers: kill what is left of the ranks that do not survive, and tell on_cleared once nothing is.
    bool clear_ranks = false;
    bool stop_clearing = false;         // the step is ending, and survivors get the usual time to exit
    std::optional<NodePlan> next_life;  // give it to the keepers
    std::set<uint32_t> survivors;       // local ranks whose keepers do not get it: their processes go on
    bool no_other_life = false;         // tell the keepers
    bool kill_keepers = false;          // and their ranks
    // Find the owner of the socket at the client's end, and tell on_answer.
    std::vector<wire::WhoOwns> lookups;
    struct Page {
        ConnectionId connection = 0;
        int32_t fd = -1;  // of that connection's process
    };
    std::vector<Page> pages;  // open it (common/phase_page.hpp) and keep it while the connection lives
    // In an election (election.hpp): drop the present connection, and connect to this successor or to nobody.
    std::optional<wire::Roll::Successor> seek;
    bool disconnect = false;
    std::vector<uint32_t> refused;  // supporters: close their connections
    // This node is the broker: make one, give it what its supporters have said, and tell on_joined.
    std::optional<Succession> elected;
    std::vector<std::pair<uint32_t, wire::FromNode>> supporters;
    // Measure what the local ranks do, and tell on_answer. By local rank: the connection of its world.
    std::optional<std::vector<std::optional<ConnectionId>>> measure;
    // Read what these local ranks do, call by call, and tell on_answer.
    struct StacksToRead {
        wire::ReadStacks asked;
        std::map<uint32_t, std::optional<ConnectionId>> ranks;  // by local rank: the connection of its world
    };
    std::vector<StacksToRead> read_stacks;
    std::vector<wire::MeasureLink> measure_links;  // with the node's examiner
    // Read what the NCCL of these ranks has warned of last, and tell on_nccl_warning of each.
    struct NcclToRead {
        uint32_t local_rank = 0;
        uint32_t generation = 0;
        uint32_t rank = 0;
    };
    std::vector<NcclToRead> read_nccl;
    std::vector<std::string> log;
};

class Node {
 public:
    Node(DaemonConfig config, NodeFacts facts, Time now);

    // With the tiles that tasks have told.
    const DaemonConfig& config() const { return config_; }

    // ---- the broker ----
    // The connection stands and both sides are proven; `address` is this node's own, as the broker sees it.
    NodeActions on_joined(const std::string& address, Time now);
    NodeActions on_broker(const wire::ToNode& message, Time now);
    // A peer there, perhaps a stranger, spoke another version of slurm-dp: this is mentioned at the deadline.
    void on_other_version(uint32_t protocol);
    // What was looked up or measured for the broker.
    NodeActions on_answer(wire::FromNode answer);
    // The connection closed or never came to be. `by_peer`: the other side has closed it, and knows.
    NodeActions on_broker_lost(const std::string& why, Time now, bool by_peer = true);
    // A relay that has lost the broker, too, supports this node, or does so no more (election.hpp).
    NodeActions on_supporter(uint32_t node, const wire::FromNode& message, Time now);
    void on_supporter_lost(uint32_t node);
    // Of its ranks, present or last.
    uint32_t generation() const { return generation_.number; }
    // Whether the last roll is settled: nodes that know only an earlier one are too few to elect a broker (quorum.hpp).
    bool is_settled() const { return election_.is_settled(); }

    // ---- the ranks ----
    NodeActions on_rank(ConnectionId connection, const wire::FromRank& message, Time now);
    NodeActions on_rank_closed(ConnectionId connection, Time now);

    // ---- who is no rank ----
    // The answer comes with these actions or with later ones.
    NodeActions on_query(ConnectionId asker, const wire::FromRank& query);

    // ---- the launcher ----
    NodeActions on_control(const ControlEvent& event, Time now);
    // With --dp-on-failure=restart the launcher's events are about the keepers, and theirs about the ranks.
    NodeActions on_keeper(const ControlEvent& event, Time now);
    // Nothing is left of the ranks (clear_ranks).
    NodeActions on_cleared(Time now);
    // Whether the local rank's process may go on in the next generation: it is not ended with the others.
    bool survives(uint32_t local_rank) const {
        return local_rank < config_.ranks.size() && survivors_.has(config_.ranks[local_rank]);
    }
    // Of the world that the local rank has opened.
    std::optional<ConnectionId> connection_of(uint32_t local_rank) const {
        return ranks_.connection_of(config_.ranks[local_rank]);
    }
    bool has_exited(uint32_t local_rank) const { return ranks_.has_exited(local_rank); }
    // How many training steps its process says that it has taken.
    std::optional<uint64_t> step_of(uint32_t local_rank) const {
        return ranks_.step_of(config_.ranks[local_rank]);
    }
    // Why its ranks are being ended, and whether no other generation follows; nullopt: they are not.
    struct Ending {
        const wire::Abort* why = nullptr;
        bool is_last = false;
    };
    std::optional<Ending> ending() const {
        if (!termination_.abort()) return std::nullopt;
        return Ending{termination_.abort(), !generation_.is_ending};
    }
    // What /proc says about a local rank's process, every second; two equal looks in a row are reported.
    NodeActions on_look(uint32_t local_rank, bool stopped);
    // What its watcher says (--dp-hang-timeout); nullopt: it moves again.
    NodeActions on_stillness(uint32_t local_rank, const std::optional<wire::Stillness>& still);
    // "" if there is none.
    NodeActions on_nccl_warning(const NodeActions::NcclToRead& of, const std::string& warning);
    // It hung up without "end": it was killed, and nobody else will end the ranks.
    NodeActions on_launcher_lost();
    // The whole step was signalled (scancel, Ctrl-C): ranks that now end do not end by themselves.
    void on_step_signal() { leaving_.cancelled = true; }

    NodeActions tick(Time now);
    std::optional<Time> next_deadline() const;

    // The last local rank has ended, and the broker was told or is gone: leave once everything is sent.
    bool finished() const { return leaving_.finished; }

    // It has ended its ranks, as all nodes have, because it lost the broker, whose own ranks may live on.
    // (Others may go on without this node.)
    bool leaves_ranks_behind() const {
        return broker_.outlived && config_.node_rank <= kReporters && !config_.settings.outlives_nodes();
    }

 private:
    // Ranks, arrivals, outbox, heartbeats and termination are parts that are tested by themselves; the rest is what
    // ties them to the broker, the launcher and the generation.
    DaemonConfig config_;
    NodeFacts facts_;
    Time started_;
    LocalRanks ranks_;
    PendingArrivals pending_arrivals_;
    std::set<Caller> waiting_;       // calls that were not answered yet
    wire::Deaths deaths_;            // what those hear who come later
    std::set<ConnectionId> askers_;  // whose query was not answered yet
    Outbox outbox_{config_.settings.wants_record()};
    Heartbeats heartbeats_;
    Election election_;
    std::map<uint32_t, wire::FromNode> supporters_;  // what they said
    Termination termination_;
    // The one peer of a relay's heartbeats.
    static constexpr Heartbeats::Peer kBroker = 0;
    std::optional<Time> lease_;            // where ranks may begin elsewhere: until when they may live here
    std::map<uint32_t, Time> told_tasks_;  // to end, when
    bool published_ = false;               // a plan, or that there is none
    bool is_unfit_ = false;                // it gets no ranks (--dp-preflight)
    struct {
        uint32_t number = 0;
        bool is_ending = false;        // its ranks are, for the next one
        bool has_lost_broker = false;  // meanwhile
        bool has_stepped = false;      // a rank has reported a training step
        bool is_last = false;          // the keepers know that none follows
    } generation_;
    Survivors survivors_;
    size_t nccl_awaited_ = 0;             // ranks whose last warning is being read
    std::map<uint32_t, int> late_exits_;  // of survivors, by local rank: reported in the next generation

    struct Loss {
        std::string reason;
        Time until{};
    };
    struct {
        std::string own_address;  // as it sees this node
        bool joined = false;
        bool gone = false;
        std::optional<Loss> loss;       // not told yet
        bool outlived = false;          // this node ends its ranks because of that
        Time clock{};                   // its own, in its last heartbeat
        Time heard{};                   // this node's, when that came
        std::optional<Time> closed_at;  // by itself
        std::string other_version;      // what answers in its place
    } broker_;
    struct {
        bool cancelled = false;  // the whole step was signalled
        bool ending = false;     // the launcher said "end"
        bool told = false;       // the broker was told that this node leaves
        bool gave_up = false;    // it has ended its ranks, and told why
        bool finished = false;
    } leaving_;
    // With --dp-spares or --dp-min-nodes, from the loss of the broker until the next one is found.
    struct LostBroker {
        std::string reason;  // which this node tells
        std::string why;
        Time lost_at{};
        OldWorldEnds ends;
        bool is_held_back = true;  // the loss; it may be the step's end
        bool is_cleared = false;   // nothing is left of its ranks
        Time deadline() const { return lost_at + kEndsAfterTerm + kEndsAfterKill; }  // for that
    };
    std::optional<LostBroker> lost_broker_;
    NodeActions out_;

    NodeActions take();
    void tell_arrivals(std::vector<wire::NodeArrive> arrivals);
    static wire::FromNode event_of(uint32_t rank, const std::function<void(wire::RankEvent&)>& fill);
    void tell_asker(ConnectionId asker, wire::ToRank message);
    void abort(wire::Abort message, bool is_ours_to_tell, Time now);
    void plan(const wire::Plan& message, Time now);
    void started(uint32_t rank, pid_t pid, Time now);
    void exited(uint32_t local_rank, int status, Time now);
    void end_generation(const wire::EndGeneration& message, Time now);
    void begin_generation(const wire::Plan& message, Time now);
    std::vector<uint32_t> take_place(const wire::Place& place);
    void tell_what_tasks_were_told(Time now);
    void survive(uint32_t local_rank, ConnectionId connection, int32_t pid, const wire::Plan& plan,
                 const std::string& reason, Time now);
    void rejoin(uint32_t rank, const wire::Rejoin& message);
    void spare_survivors(Time until);
    void tell_end(const wire::Abort& why);
    void give_up_survivors(Time now);
    void drop_survivor(uint32_t rank, Time now);
    void drop_late_survivors(Time now);
    bool has_ended(uint32_t local_rank) const;
    void tell_told(uint32_t rank);
    void progress(uint32_t rank, uint64_t step);
    void no_other_life();
    void clear_if_all_ended();
    bool all_ended() const;
    Time lease_until(Time heard) const { return heard + fenced_after(config_); }
    // Its ranks are being ended for good.
    bool is_aborted() const { return termination_.abort() && !generation_.is_ending; }
    void keeper_ended(uint32_t local_rank, int status, Time now);
    void give_up(const std::string& why);
    void tell_ranks(const wire::ToRank& message);
    void tell_deaths(const wire::Deaths& deaths);
    void answer(const std::vector<Caller>& callers, const wire::Reply& reply);
    void end_calls(const std::string& why);
    std::string too_large(const wire::Request& request) const;
    void refuse(ConnectionId connection, uint64_t id, wire::Status status, const std::string& why);
    std::string why_no_hello(const wire::Hello& hello) const;
    void hello(ConnectionId connection, const wire::Hello& hello, Time now);
    void tell_hello(uint32_t rank, int32_t pid, Time now);
    void request(ConnectionId connection, uint32_t rank, const wire::Request& request, Time now);
    void forget(ConnectionId connection, uint32_t rank, Time now);
    void report_exit(uint32_t rank, Time now);
    void read_nccl(uint32_t local_rank);
    void leave_if_all_told();
    void check_heartbeats(Time now);
    void give_up_broker(const std::string& why);
    // `silent_since`: when its lease ran out, if that is all that is known.
    void lose_broker(const std::string& why, Time delay, Time now, std::optional<Time> silent_since = {});
    void tell_loss(Time now);
    wire::FromNode heartbeat(Time now) const;
    void alive(const wire::Alive& message, Time now);
    void end_ranks_without_broker(LostBroker loss, std::optional<Time> silent_since, Time now);
    void kill_without_broker();
    void elect_if_ready(Time now);
    void perform(const Election::Actions& actions, Time now);
    void become_broker();
    void found_broker(Time now);
    void end_without_broker(const std::string& why, Time now);
    // Whether this node reports the loss of the broker, which all nodes see.
    bool is_reporter() const { return facts_.own_stderr || config_.node_rank <= kReporters; }
    std::string daemon_of_broker() const { return "the rendezvous daemon on " + config_.broker_host; }
};

}  // namespace dp
