// SPDX-License-Identifier: Apache-2.0
//
// The Node's dealings with the broker, the launcher and time (node.hpp); node_ranks.cpp has those with ranks.
#include "engine/node.hpp"

#include <csignal>

#include "base/text.hpp"
#include "engine/stack_questions.hpp"
#include "framing.hpp"

namespace dp {
namespace {

// " (10.0.0.1, 10.1.0.1)"; "" if there are none.
std::string shown(const std::vector<std::string>& addresses) {
    constexpr size_t kShown = 4;
    std::string out;
    for (size_t i = 0; i < addresses.size() && i < kShown; ++i) out += (i ? ", " : " (") + addresses[i];
    return out + (addresses.size() > kShown ? ", ...)" : addresses.empty() ? "" : ")");
}

wire::ToRank lost(const std::string& why) {
    return wrap(&wire::ToRank::mutable_reply, reply_with(wire::LOST, why));
}

}  // namespace

Node::Node(DaemonConfig config, NodeFacts facts, Time now)
    : config_(std::move(config)),
      facts_(std::move(facts)),
      started_(now),
      ranks_(config_.ranks),
      pending_arrivals_(config_.ranks),
      heartbeats_(dead_after(config_)),
      election_(config_.node_rank) {
    generation_.number = config_.generation;
}

NodeActions Node::take() {
    out_.to_broker = outbox_.take();
    out_.news = outbox_.take_news();
    for (auto* messages : {&out_.to_broker, &out_.news})
        for (auto& message : *messages) message.set_generation(generation_.number);
    return std::exchange(out_, {});
}

void Node::tell_arrivals(std::vector<wire::NodeArrive> arrivals) {
    for (auto& arrival : arrivals) outbox_.send(wrap(&wire::FromNode::mutable_arrive, std::move(arrival)));
}

wire::FromNode Node::event_of(uint32_t rank, const std::function<void(wire::RankEvent&)>& fill) {
    wire::FromNode message;
    message.mutable_rank()->set_rank(rank);
    fill(*message.mutable_rank());
    return message;
}

// ---- the broker ----

NodeActions Node::on_joined(const std::string& address, Time now) {
    broker_.joined = true;
    broker_.own_address = address;
    if (election_.is_under_way())
        election_.reached(now);
    else if (!broker_.gone || config_.broker)
        found_broker(now);
    wire::Join join;
    join.set_node_rank(config_.node_rank);
    join.set_host(config_.host);
    join.set_address(address);
    join.set_clock_ms(now.count());
    join.mutable_ranks()->Add(config_.ranks.begin(), config_.ranks.end());
    join.set_tasks(is_unfit_ ? 0 : config_.tasks);
    join.mutable_addresses()->Add(facts_.addresses.begin(), facts_.addresses.end());
    if (config_.settings.wants_table()) join.mutable_tiles()->Add(config_.tiles.begin(), config_.tiles.end());
    join.set_port(is_unfit_ ? 0 : facts_.port);
    if (generation_.is_ending) {
        const std::vector<uint32_t> rejoined = survivors_.ranks();
        join.mutable_rejoined()->Add(rejoined.begin(), rejoined.end());
        if (const auto step = ranks_.furthest_step()) join.set_step(*step);
    }
    if (election_.is_under_way()) *join.mutable_support() = election_.support_message(now);
    outbox_.open(wrap(&wire::FromNode::mutable_join, std::move(join)));
    return take();
}

NodeActions Node::on_broker(const wire::ToNode& message, Time now) {
    if (lost_broker_ && !election_.is_under_way()) return take();  // it is lost, whatever still comes
    // A successor speaks only once it is elected.
    if (election_.is_under_way() && !config_.broker) found_broker(now);
    heartbeats_.heard(kBroker, now);
    if (message.has_alive()) alive(message.alive(), now);
    if (message.has_roll()) perform(election_.note(message.roll(), config_.nodes), now);
    // It is of one kind.
    if (message.has_plan()) plan(message.plan(), now);
    if (message.has_end_generation()) end_generation(message.end_generation(), now);
    if (message.has_world_done()) no_other_life();
    if (message.has_reply()) {
        std::vector<Caller> callers;
        for (const auto& target : message.reply().targets()) callers.push_back({target.rank(), target.id()});
        answer(callers, message.reply().reply());
    }
    if (const auto& why = message.abort(); message.has_abort())
        abort(why, config_.broker ? !why.is_told() : facts_.own_stderr, now);
    if (message.has_deaths()) tell_deaths(message.deaths());
    if (message.has_who_owns()) out_.lookups.push_back(message.who_owns());
    if (const auto& told = message.status(); message.has_status())
        tell_asker(told.connection(), wrap(&wire::ToRank::mutable_status, told.status()));
    if (message.has_hang()) out_.hang = message.hang();
    if (message.has_measure_link()) out_.measure_links.push_back(message.measure_link());
    if (message.has_ask_nccl()) {
        const auto& asked = message.ask_nccl().ranks();
        for (uint32_t local = 0; local < config_.ranks.size(); ++local)
            if (asked.empty() || std::ranges::find(asked, config_.ranks[local]) != asked.end())
                read_nccl(local);
    }
    if (message.has_measure()) {
        auto& connections = out_.measure.emplace();
        for (uint32_t rank : config_.ranks) connections.push_back(ranks_.connection_of(rank));
    }
    if (const auto& told = message.usage(); message.has_usage())
        tell_asker(told.connection(), wrap(&wire::ToRank::mutable_usage, told.usage()));
    if (message.has_read_stacks()) {
        NodeActions::StacksToRead read{message.read_stacks(), {}};
        const auto& wanted = read.asked.wanted().ranks();
        for (uint32_t local = 0; local < config_.ranks.size(); ++local)
            if (wanted.empty() || std::ranges::find(wanted, config_.ranks[local]) != wanted.end())
                read.ranks.emplace(local, ranks_.connection_of(config_.ranks[local]));
        out_.read_stacks.push_back(std::move(read));
    }
    if (const auto& told = message.stacks(); message.has_stacks())
        tell_asker(told.connection(), wrap(&wire::ToRank::mutable_stacks, told.stacks()));
    if (message.has_farewell()) {
        give_up_broker(" has left");
        if (message.farewell().end_is_known()) lease_.reset();
        end_calls(daemon_of_broker() + " has left (rank 0's node has finished)");
        if (leaving_.told) leaving_.finished = true;
    }
    return take();
}

void Node::plan(const wire::Plan& message, Time now) {
    if (message.place().ranks_size() > static_cast<int>(config_.tasks)) return;  // it cannot be this node's
    NodePlan plan{message.master_addr(),
                  static_cast<uint16_t>(message.master_port()),
                  static_cast<uint16_t>(message.coordinator_port()),
                  broker_.own_address,
                  message.table(),
                  message.generation()};
    plan.hosts = message.hosts();
    plan.ranks_per_host = message.ranks_per_host();
    if (const auto& place = message.place(); message.has_place())
        plan.place = {{place.ranks().begin(), place.ranks().end()},
                      place.node_rank(),
                      place.nodes(),
                      place.world_size()};
    const bool is_next =
        published_ && generation_.is_ending && plan.place && plan.generation == generation_.number + 1;
    if (message.has_roll() && (!published_ || is_next))
        perform(election_.note(message.roll(), config_.nodes), now);
    if (message.has_place()) is_unfit_ = message.place().is_unfit();
    if (!std::exchange(published_, true)) {
        if (plan.place && plan.place->ranks != config_.ranks) {
            take_place(message.place());
            tell_what_tasks_were_told(now);
        }
        out_.plan = std::move(plan);
    } else if (is_next) {
        begin_generation(message, now);
        out_.next_life = std::move(plan);
    }
    if (message.has_roll() && !config_.broker) outbox_.send(heartbeat(now));  // it knows
}

void Node::on_other_version(uint32_t protocol) {
    broker_.other_version = "what answers there speaks protocol " + std::to_string(protocol) +
                            " and this node " + std::to_string(kNodeProtocol) +
                            "; install the same version of slurm-dp on both";
}

NodeActions Node::on_answer(wire::FromNode answer) {
    outbox_.send(std::move(answer));
    return take();
}

NodeActions Node::on_broker_lost(const std::string& why, Time now, bool by_peer) {
    if (election_.is_under_way()) {
        perform(election_.unreachable(now), now);
        return take();
    }
    if (by_peer) broker_.closed_at = now;
    // It has only now seen that, and may begin this node's ranks elsewhere.
    if (lost_broker_ && !lost_broker_->is_cleared) survivors_.begin_without_broker(now);
    lose_broker(why, broker_.joined ? kLostDelay : Time(0), now);
    return take();
}

void Node::give_up_broker(const std::string& why) {
    broker_.gone = true;
    heartbeats_.forget(kBroker);
    outbox_.close();
    for (ConnectionId asker : std::exchange(askers_, {}))
        out_.answers.emplace_back(asker, lost(daemon_of_broker() + why));
}

// The broker is gone; the report is held back for the delay.
void Node::lose_broker(const std::string& why, Time delay, Time now, std::optional<Time> silent_since) {
    if (broker_.gone) return;
    give_up_broker(" is gone: " + why);
    if (leaving_.ending) {
        if (leaving_.told) leaving_.finished = true;
        return;
    }
    if (is_aborted()) return kill_without_broker();
    if (leaving_.gave_up) return;
    broker_.outlived = published_ && !config_.settings.reports_failures();
    broker_.loss = {
        broker_.joined ? "node " + config_.host + " lost " + daemon_of_broker() + ": " + why : why,
        now + delay};
    if (config_.settings.outlives_nodes() && published_ && !generation_.is_last) {
        // A node that heard it to the last has ended its ranks by then, but for those that rejoin.
        const Time silent =
            (broker_.closed_at ? now : broker_.heard) + fenced_after(config_) + kEndsAfterSilence;
        end_ranks_without_broker({broker_.loss->reason,
                                  why,
                                  now,
                                  {broker_.closed_at ? now + kEndsAfterClosing : silent,
                                   silent + rejoins_without_broker(config_)}},
                                 silent_since, now);
    }
    if (delay == Time(0)) tell_loss(now);
}

void Node::tell_loss(Time now) {
    const std::string reason = std::exchange(broker_.loss, std::nullopt)->reason;
    if (leaving_.ending || is_aborted()) return;
    if (lost_broker_) {
        lost_broker_->is_held_back = false;
        return elect_if_ready(now);
    }
    if (config_.settings.reports_failures() && published_) {
        if (is_reporter())
            out_.log.push_back(reason + "; its ranks continue without it (--dp-on-failure=report)");
        end_calls(reason);
        wire::Deaths nobody;
        nobody.set_reason(reason + "; later failures are not reported");
        tell_deaths(nobody);
        return;
    }
    // Without a plan the waiting tasks of this node print the reason themselves.
    if (published_ && is_reporter()) out_.log.push_back(reason + "; ending the step");
    abort(abort_message(reason, kBroken), !broker_.joined || is_reporter(), now);
}

void Node::abort(wire::Abort message, bool is_ours_to_tell, Time now) {
    if (is_aborted() && message.kill_after_ms() == 0) return kill_without_broker();
    if (is_aborted()) return;
    generation_.is_ending = false;  // for good now
    out_.stop_clearing = true;
    give_up_survivors(now);
    no_other_life();
    message.set_reason(printable(message.reason(), 600));
    if (!std::exchange(published_, true)) {
        out_.no_plan = is_ours_to_tell ? message.reason() : "";
        // Local rank 0 prints it as it waits for the plan, unless it is dead.
        if (is_ours_to_tell && ranks_.has_exited(0))
            out_.log.push_back(message.reason() + "; ending the step");
    } else if (facts_.own_stderr && !config_.broker && !broker_.gone) {
        out_.log.push_back(message.reason() + "; ending the step");
    }
    // What waits in dp_rejoin must not wake up: others may go on without it.
    if (generation_.has_lost_broker) {
        message = abort_message(message.reason(), {Time(0), Time(0)});
        out_.signal_ranks = SIGKILL;
        out_.stop_clearing = false;
        out_.clear_ranks = true;
    }
    termination_.begin(message, now);
    if (!generation_.has_lost_broker) tell_ranks(wrap(&wire::ToRank::mutable_abort, std::move(message)));
}

// ---- who is no rank ----

NodeActions Node::on_query(ConnectionId asker, const wire::FromRank& query) {
    if (!broker_.joined || broker_.gone) {
        out_.answers.emplace_back(
            asker, lost(broker_.gone ? daemon_of_broker() + " is gone"
                                     : "this node has not reached " + daemon_of_broker() + " yet"));
        return take();
    }
    if (query.has_stacks() && query.stacks().ByteSizeLong() > kMaxStacksRequest) {
        wire::StepStacks none;
        none.set_problem("too many ranks at once; ask for all of them, without --rank");
        out_.answers.emplace_back(asker, wrap(&wire::ToRank::mutable_stacks, std::move(none)));
        return take();
    }
    if (!askers_.insert(asker).second) return take();  // the answer that is under way will do
    wire::FromNode message;
    if (query.has_usage()) {
        message.mutable_ask_usage()->set_connection(asker);
    } else if (query.has_stacks()) {
        message.mutable_ask_stacks()->set_connection(asker);
        *message.mutable_ask_stacks()->mutable_wanted() = query.stacks();
    } else {
        message.mutable_status()->set_connection(asker);
        message.mutable_status()->set_summary(query.status().summary());
    }
    outbox_.send(std::move(message));
    return take();
}

void Node::tell_asker(ConnectionId asker, wire::ToRank message) {
    if (askers_.erase(asker) > 0) out_.answers.emplace_back(asker, std::move(message));
}

// ---- the launcher ----

void Node::report_exit(uint32_t rank, Time now) {
    const auto exit = ranks_.take_exit(rank);
    if (!exit) return;
    tell_arrivals(pending_arrivals_.give_up(rank, now));
    wire::FromNode event = event_of(rank, [&](wire::RankEvent& e) {
        e.set_exited(exit->status);
        e.set_cancelled(exit->cancelled);
        if (exit->step) e.set_step(*exit->step);
    });
    if (exit->status == 0)
        outbox_.batch_exit(std::move(event), now);
    else
        outbox_.send(std::move(event));
    const bool was_told = exit->cancelled || termination_.abort() || grace_after(exit->status) == kTerminated;
    if (exit->status != 0 && !was_told)
        read_nccl(static_cast<uint32_t>(std::ranges::find(config_.ranks, rank) - config_.ranks.begin()));
    leave_if_all_told();
}

void Node::read_nccl(uint32_t local_rank) {
    if (!config_.settings.wants_nccl_debug()) return;
    ++nccl_awaited_;
    out_.read_nccl.push_back({local_rank, generation_.number, config_.ranks[local_rank]});
}

NodeActions Node::on_nccl_warning(const NodeActions::NcclToRead& of, const std::string& warning) {
    --nccl_awaited_;
    if (!warning.empty()) {
        wire::NcclWarning found;
        found.set_generation(of.generation);
        found.set_rank(of.rank);
        found.set_text(warning);
        outbox_.send(wrap(&wire::FromNode::mutable_nccl_warning, std::move(found)));
    }
    leave_if_all_told();
    return take();
}

void Node::leave_if_all_told() {
    if (!leaving_.ending || leaving_.told || ranks_.has_exits() || nccl_awaited_ > 0) return;
    leaving_.told = true;
    // Without a broker there is nothing to wait for.
    leaving_.finished = broker_.gone || !broker_.joined;
    if (!leaving_.finished) outbox_.send(wrap(&wire::FromNode::mutable_leave));
}

NodeActions Node::on_control(const ControlEvent& event, Time now) {
    if (event.kind == ControlEvent::Kind::end) {
        leaving_.ending = true;
        leave_if_all_told();
        return take();
    }
    if (event.local_rank >= config_.tasks) return take();
    const bool kept = config_.settings.restarts_ranks();
    // A spare's, with --dp-dry-run.
    if (!kept && event.local_rank >= config_.ranks.size()) return take();
    if (event.kind == ControlEvent::Kind::tiles) {
        if (event.local_rank < config_.tiles.size()) config_.tiles[event.local_rank] = event.text;
    } else if (event.kind == ControlEvent::Kind::task) {
        if (!kept) started(config_.ranks[event.local_rank], event.value, now);
    } else if (event.kind == ControlEvent::Kind::exit) {
        kept ? keeper_ended(event.local_rank, event.value, now) : exited(event.local_rank, event.value, now);
    }
    return take();
}

void Node::started(uint32_t rank, pid_t pid, Time now) {
    outbox_.send(event_of(rank, [&](wire::RankEvent& e) {
        e.set_started(pid);
        e.set_at_ms(now.count());
    }));
}

void Node::exited(uint32_t local_rank, int status, Time now) {
    const uint32_t rank = config_.ranks[local_rank];
    ranks_.exit(local_rank, status, leaving_.cancelled || termination_.abort(), now);
    if (!ranks_.connection_of(rank)) report_exit(rank, now);
}

NodeActions Node::on_look(uint32_t local_rank, bool stopped) {
    if (auto change = ranks_.look(local_rank, stopped))
        outbox_.send(
            event_of(config_.ranks[local_rank], [&](wire::RankEvent& e) { e.set_stopped(*change); }));
    return take();
}

NodeActions Node::on_stillness(uint32_t local_rank, const std::optional<wire::Stillness>& still) {
    if (local_rank < config_.ranks.size() && !has_ended(local_rank))
        outbox_.send(event_of(config_.ranks[local_rank], [&](wire::RankEvent& e) {
            if (still)
                *e.mutable_still() = *still;
            else
                e.set_moves(true);
        }));
    return take();
}

// Ends all that runs here, before the broker can let it begin elsewhere.
void Node::give_up(const std::string& why) {
    leaving_.gave_up = true;
    survivors_ = Survivors();
    if (election_.is_under_way()) out_.disconnect = true;
    election_.found();
    out_.signal_ranks = SIGKILL;
    out_.kill_keepers = true;
    wire::Fault fault;
    fault.set_reason(why);
    outbox_.send(wrap(&wire::FromNode::mutable_fault, std::move(fault)));
}

NodeActions Node::on_launcher_lost() {
    if (leaving_.ending) return take();
    give_up((config_.job_id == 0 ? "dpctl on " : "slurmstepd on ") + config_.host +
            (config_.ranks.empty() ? " (a spare) is gone"
                                   : " is gone; its " + plural(config_.ranks.size(), "rank") +
                                         (config_.ranks.size() == 1 ? " is" : " are") + " ended"));
    leaving_.ending = true;
    ranks_.drop_exits();
    leave_if_all_told();
    return take();
}

// ---- time ----

wire::FromNode Node::heartbeat(Time now) const {
    wire::Alive alive;
    alive.set_clock_ms(now.count());
    alive.set_lease(lease_.has_value());
    if (lease_) alive.set_heard_ms(broker_.clock.count());
    alive.set_roll(election_.roll().number());
    return wrap(&wire::FromNode::mutable_alive, std::move(alive));
}

void Node::alive(const wire::Alive& message, Time now) {
    if (message.roll() > 0) election_.note_settled(message.roll());
    if (!lease_) return;
    lease_ = std::max(*lease_, lease_until(clamped(message.heard_ms())));
    broker_.clock = clamped(message.clock_ms());
    broker_.heard = now;
    if (message.answer()) outbox_.send(heartbeat(now));
}

void Node::check_heartbeats(Time now) {
    const Heartbeats::News news = heartbeats_.check(now);
    if (news.send) outbox_.send(heartbeat(now));
    // If all nodes see the same, one of them reports it; the broker is nearly always on one of the first two.
    if (news.notice && !config_.broker && config_.node_rank <= 1) {
        out_.log.push_back(
            news.notice->silent.empty()
                ? daemon_of_broker() + " responds again after " + words(news.notice->longest)
                : daemon_of_broker() + " has been silent for " + words(kSilent) +
                      ": its network, the daemon or the node may be down; it counts as lost after " +
                      words(dead_after(config_)));
    }
    if (!news.dead.empty()) lose_broker("it has been silent for " + words(dead_after(config_)), Time(0), now);
}

NodeActions Node::tick(Time now) {
    if (!broker_.joined && !broker_.gone && now >= started_ + config_.settings.timeout())
        lose_broker("this node could not reach " + daemon_of_broker() + shown(config_.broker_addresses) +
                        " within " + words(config_.settings.timeout()) + " (--dp-timeout): " +
                        (broker_.other_version.empty()
                             ? "check that its node is up and that this node may connect to it"
                             : broker_.other_version),
                    Time(0), now);
    if (lease_ && now >= *lease_) {
        const Time silent_since = *std::exchange(lease_, std::nullopt);
        if (broker_.gone)
            kill_without_broker();
        else
            lose_broker("it has confirmed no heartbeat for " + words(fenced_after(config_)), Time(0), now,
                        silent_since);
    }
    if (broker_.loss && now >= broker_.loss->until) tell_loss(now);
    if (lost_broker_ && !lost_broker_->is_cleared && now >= lost_broker_->deadline())
        end_without_broker(
            "this node could not end its ranks within " + words(kEndsAfterTerm + kEndsAfterKill) +
                " (does a process wait for a file system?), so it takes no part in the election",
            now);
    perform(election_.tick(now), now);
    drop_late_survivors(now);
    for (uint32_t rank : ranks_.overdue(now)) report_exit(rank, now);
    outbox_.expire(now);
    tell_arrivals(pending_arrivals_.expire(now));
    check_heartbeats(now);
    if (auto signal = termination_.signal(now)) out_.signal_ranks = signal;
    return take();
}

std::optional<Time> Node::next_deadline() const {
    std::optional<Time> loss, search, clearing;
    if (lost_broker_ && !lost_broker_->is_cleared) clearing = lost_broker_->deadline();
    if (broker_.loss) loss = broker_.loss->until;
    if (!broker_.joined && !broker_.gone) search = started_ + config_.settings.timeout();
    return earliest({termination_.next_deadline(), outbox_.next_deadline(), pending_arrivals_.next_deadline(),
                     heartbeats_.next_deadline(), ranks_.next_deadline(), election_.next_deadline(), loss,
                     search, lease_, clearing, survivors_.next_deadline()});
}

}  // namespace dp
