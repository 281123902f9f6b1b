// SPDX-License-Identifier: Apache-2.0
//
// The broker's handling of nodes' messages, of missing ranks, and of time. broker_deaths.cpp handles
// failures, broker_questions.cpp dpctl's questions. See broker.hpp.
#include "engine/broker.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/slurm_patterns.hpp"
#include "engine/election.hpp"
#include "framing.hpp"

namespace dp {

Broker::Broker(DaemonConfig config, uid_t owner, Time now)
    : config_(std::move(config)),
      started_(now),
      members_(config_.world_size, config_.nodes,
               expand_hostlist(config_.node_list).value_or(std::vector<std::string>()), now),
      heartbeats_(dead_after(config_)),
      authorization_(owner),
      restart_policy_(config_.settings),
      ports_{config_.master_port, config_.coordinator_port} {
    generation_.emplace(config_.generation, members_, config_.settings, now);
    restart_policy_.begin(now);
    if (config_.settings.outlives_nodes()) quorum_.emplace();
    if (config_.settings.wants_preflight()) preflight_.emplace(config_.settings.preflight == Preflight::full);
}

Broker::Broker(DaemonConfig config, uid_t owner, Succession succession, Time now)
    : Broker(std::move(config), owner, now) {
    const size_t nodes = nodes_of(succession.roll, config_.nodes).size();
    plan_sent_ = true;
    preflight_.reset();
    node_is_gone_ = true;
    started_ = std::min(started_, succession.lost_at);
    roll_ = succession.roll.number();
    restart_policy_ = RestartPolicy(config_.settings, succession.roll.restarts_used());
    restart_.emplace("", std::set<uint32_t>(), Time(0), succession.lost_at);
    quorum_->elect(nodes);
    succession_.emplace(std::move(succession), nodes, now);
}

BrokerActions Broker::take() {
    out_.decisions = authorization_.take_decisions();
    for (std::string& line : nccl_warnings_.take()) out_.log.push_back(std::move(line));
    return std::exchange(out_, {});
}

void Broker::send(uint32_t node, wire::ToNode message) {
    out_.sends.emplace_back(node, std::move(message));
}

void Broker::to_all(const wire::ToNode& message) {
    const SharedBytes rest = shared_bytes(message);
    for (uint32_t node = 0; node < members_.nodes().size(); ++node)
        if (members_.nodes()[node].is_here())
            out_.sends.emplace_back(node, SharedMessage(wire::ToNode(), rest));
}

// One message per node, however many of its ranks it answers; the answer itself is serialised once.
void Broker::deliver(const std::vector<Answer>& answers) {
    for (const auto& a : answers) {
        std::map<uint32_t, wire::ToNode> by_node;
        for (const Caller& caller : a.callers) {
            const auto& node = members_.ranks()[caller.rank].node;
            if (!node || members_.nodes()[*node].lost) continue;
            auto* target = by_node[*node].mutable_reply()->add_targets();
            target->set_rank(caller.rank);
            target->set_id(caller.id);
        }
        wire::ToNode common;
        *common.mutable_reply()->mutable_reply() = a.reply;
        const SharedBytes rest = shared_bytes(common);
        for (auto& [node, targets] : by_node)
            out_.sends.emplace_back(node, SharedMessage(std::move(targets), rest));
    }
}

std::string Broker::where(uint32_t rank) const {
    return "rank " + std::to_string(rank) + " on " + members_.host_of(rank);
}

void Broker::leave(uint32_t node, const wire::Leave& said, Time now) {
    if (config_.settings.wants_record() && said.spent_ms_size() == static_cast<int>(kSpent)) {
        ++nodes_spent_;
        for (int what = 0; what < said.spent_ms_size(); ++what)
            spent_[static_cast<size_t>(what)] +=
                static_cast<double>(std::max<int64_t>(said.spent_ms(what), 0)) / 1000;
    }
    members_.leave(node);
    forget_node(node);
    if (node == config_.node_rank) {
        // It was cancelled, and nobody else can start now.
        if (!plan_sent_)
            abort({"the ranks on " + members_.nodes()[node].host + " ended before the world was complete"});
        leave_at_ = now + kBrokerLinger;
    }
    finish_if_nobody_is_here();
}

// A step that is ending accepts no more nodes.
void Broker::finish_if_nobody_is_here() {
    if (members_.all_left() || (abort_ && leave_at_ && members_.nobody_is_here())) finish();
}

// The times are those of the metrics (record/node_ledger.hpp): a report, with the records of all nodes, tells more apart.
void Broker::finish() {
    constexpr double kWorthALine = 1;  // second
    if (std::exchange(finished_, true) || std::accumulate(spent_.begin(), spent_.end(), 0.0) < kWorthALine)
        return;
    const auto nodes = static_cast<uint32_t>(members_.nodes().size());
    out_.log.push_back(
        (nodes_spent_ < nodes
             ? "the tasks of " + std::to_string(nodes_spent_) + " of " + plural(nodes, "node")
             : std::string("the tasks")) +
        " spent " + spent_in_words(spent_) + "; more: dpctl report " +
        fill_in(config_.settings.record->pattern,
                {{'j', std::to_string(config_.job_id)}, {'s', std::to_string(config_.step_id)}, {'N', "*"}}));
}

// What it says of ranks is about their last lives. (That Slurm has told them to end holds for the next ones, too.)
// An elected broker's nodes have ended theirs.
bool Broker::is_of_another_generation(const wire::FromNode& message) const {
    const bool of_ranks = (message.has_rank() && !message.rank().has_told_to_end()) || message.has_hellos() ||
                          message.has_arrive() || message.has_request() || message.has_generation_ended() ||
                          message.has_paces() || message.has_nccl_transports();
    return of_ranks && config_.settings.restarts_ranks() &&
           (succession_ || message.generation() != generation_->number);
}

BrokerActions Broker::on_message(uint32_t node, const wire::FromNode& message, Time now) {
    if (has_resigned_) return take();
    if (succession_ && !members_.nodes()[node].joined && !message.has_join()) return take();
    heartbeats_.heard(node, now);
    if (is_of_another_generation(message)) return take();
    if (members_.nodes()[node].lost && !message.has_leave())
        return take();  // its ranks may have begun elsewhere
    // It is of one kind.
    if (message.has_join()) join(node, message.join(), now);
    if (message.has_rank()) {
        rank_event(node, message.rank(), now);
        check_hang(now);
    }
    if (preflight_ && (message.has_examination() || message.has_measured_link())) {
        if (message.has_examination()) preflight_->note(node, message.examination());
        if (message.has_measured_link()) preflight_->note(node, message.measured_link());
        begin_if_fit(now);
    }
    if (message.has_hellos()) hellos(node, message.hellos(), now);
    if (message.has_arrive()) arrival(node, message.arrive(), now);
    if (message.has_request()) request(node, message.request(), now);
    if (message.has_generation_ended()) generation_ended(node, message.generation_ended());
    if (message.has_fault()) fault(node, printable(message.fault().reason(), 300), now);
    if (message.has_leave()) {
        if (quorum_) quorum_->confirm(node, now);  // it elects nobody any more
        leave(node, message.leave(), now);
    }
    if (message.has_owner()) authorization_.answer(node, message.owner());
    if (message.has_status()) {
        wire::TellStatus told;
        told.set_connection(message.status().connection());
        *told.mutable_status() = status(message.status().summary(), now);
        send(node, wrap(&wire::ToNode::mutable_status, std::move(told)));
    }
    if (message.has_ask_usage()) ask_usage({node, message.ask_usage().connection()}, now);
    if (message.has_usage()) usage_.answer(node, message.usage(), members_);
    if (message.has_ask_stacks()) ask_stacks(node, message.ask_stacks(), now);
    if (message.has_stacks()) stacks_.answer(node, message.stacks(), members_);
    if (message.has_nccl_warning() && message.nccl_warning().rank() < config_.world_size &&
        message.nccl_warning().generation() <= generation_->number)
        nccl_warnings_.note(message.nccl_warning());
    if (message.has_nccl_transports()) transports_.note(node, message.nccl_transports(), now);
    for (const auto& pace : message.paces().ranks())
        if (is_on(pace.rank(), node)) generation_->slow_ranks.note(pace);
    tell_observations(now);
    if (message.has_alive()) alive(node, message.alive(), now);
    tell_askers(now);
    return take();
}

void Broker::join(uint32_t node, const wire::Join& join, Time now) {
    if (join.node_rank() != node || !is_awaited(node, join)) {
        out_.refused.push_back(node);
        return;
    }
    if (auto why = members_.join(join, now)) {
        out_.log.push_back("refused a relay from " + printable(join.host(), 64) + ": " + *why);
        out_.refused.push_back(node);
        return;
    }
    if (node != config_.node_rank) heartbeats_.watch(node, now);
    authorization_.add_node(node, {join.addresses().begin(), join.addresses().end()},
                            node == config_.node_rank);
    if (abort_) {
        wire::Abort at_once = abort_message(abort_->reason(), {Time(0), kBroken.kill});
        *at_once.mutable_dead() = abort_->dead();
        return send(node, wrap(&wire::ToNode::mutable_abort, std::move(at_once)));
    }
    if (!death_reports_.told().reason().empty())
        send(node, wrap(&wire::ToNode::mutable_deaths, death_reports_.told()));
    if (succession_) {
        succession_->add_survivors(of_node(join.rejoined(), node));
        if (join.has_step()) steps_repeated_.ended_at(join.step());
        if (node == config_.node_rank) return check_succession(now);
        quorum_->join(node);
        succession_->joined(
            {now + clamped(join.support().broker_ends_ms()), now + clamped(join.support().nodes_end_ms())});
        send(node, wrap(&wire::ToNode::mutable_alive, heartbeat(node, now, now)));
        return check_succession(now);
    }
    begin_if_fit(now);
}

// Only once every node has joined, and with --dp-preflight is found fit: if one cannot take part, no rank starts anywhere.
// That delays nobody, for the world needs every node.
void Broker::begin_if_fit(Time now) {
    // The loss of a node with ranks ends the step.
    const auto is_missing = [](const auto& node) { return !node.is_here() && !node.ranks.empty(); };
    if (plan_sent_ || abort_ || !members_.all_joined() || std::ranges::any_of(members_.nodes(), is_missing))
        return;
    if (!preflight_) return send_plan(now);
    for (;;) {
        const NodePreflight::Step step = preflight_->advance(members_, now);
        for (const auto& [node, message] : step.sends)
            send(node, wrap(&wire::ToNode::mutable_measure_link, message));
        if (!step.fitness) return;
        for (const auto& remark : step.fitness->remarks) out_.log.push_back("--dp-preflight: " + remark);
        if (!step.fitness->is_good() && !replace_unfit(*step.fitness, now)) return;
        if (step.is_last) break;
    }
    preflight_.reset();
    send_plan(now);
}

// Before any rank has started; else the step ends.
bool Broker::replace_unfit(const Fitness& fitness, Time now) {
    const std::string why = refusal(fitness, members_);
    Settings settings = config_.settings;
    settings.dry_run = false;  // it shows what would be
    const bool can_replace = settings.outlives_nodes() && fitness.disagreement.empty() &&
                             !fitness.unfit.contains(config_.node_rank);
    if (!can_replace) return refuse(why), false;
    std::vector<NodeOfWorld> nodes = members_.world();
    for (const auto& [node, reason] : fitness.unfit) nodes[node].is_here = false;
    const auto world = next_world(nodes, settings, config_.node_rank);
    if (!world) return refuse(why + "; " + world.error().message), false;
    out_.log.push_back("not fit for this step (--dp-preflight): " + who_is_unfit(fitness.unfit, members_) +
                       "; it " + (*config_.settings.dry_run ? "would begin" : "begins") +
                       (world->came.empty() && !world->shrank ? " without" : change(*world)));
    if (*config_.settings.dry_run) return true;
    for (const auto& [node, reason] : fitness.unfit) members_.set_unfit(node);
    told_to_end_.clear();  // the nodes tell again
    members_.begin_generation(*world);
    generation_.emplace(config_.generation, members_, config_.settings, now);
    return true;
}

void Broker::send_plan(Time now) {
    wire::ToNode plan;
    plan.mutable_plan()->set_master_addr(config_.master_addr);
    plan.mutable_plan()->set_master_port(ports_.master);
    plan.mutable_plan()->set_coordinator_port(ports_.coordinator);
    plan.mutable_plan()->set_generation(generation_->number);
    plan.mutable_plan()->set_replaced(generation_->replaced);
    members_.tell_hosts(*plan.mutable_plan());
    const bool is_first = !std::exchange(plan_sent_, true);
    const std::string table = is_first && config_.settings.wants_table() ? members_.table() : "";
    if (!config_.settings.restarts_ranks() && table.empty()) return to_all(plan);
    if (quorum_) *plan.mutable_plan()->mutable_roll() = next_roll(now);
    const std::vector<wire::Place> places = members_.places();
    for (uint32_t node = 0; node < places.size(); ++node) {
        if (!members_.nodes()[node].is_here()) continue;
        wire::ToNode own = plan;
        if (config_.settings.restarts_ranks()) *own.mutable_plan()->mutable_place() = places[node];
        if (node == config_.node_rank) own.mutable_plan()->set_table(table);
        send(node, std::move(own));
    }
}

bool Broker::is_on(uint32_t rank, uint32_t node) const {
    return rank < members_.ranks().size() && members_.ranks()[rank].node == node;
}

std::vector<uint32_t> Broker::of_node(const google::protobuf::RepeatedField<uint32_t>& ranks,
                                      uint32_t node) const {
    std::vector<uint32_t> out;
    std::ranges::copy_if(ranks, std::back_inserter(out), [&](uint32_t rank) { return is_on(rank, node); });
    return out;
}

void Broker::hellos(uint32_t node, const wire::Hellos& hellos, Time now) {
    for (const auto& said : hellos.ranks()) {
        if (!is_on(said.rank(), node)) continue;
        members_.hello(said);
        // The task runs its next program: the calls of the last one are not its own.
        if (generation_->vanished.remove(said.rank())) generation_->collectives.withdraw(said.rank());
        const auto& told = members_.ranks()[said.rank()].told;
        const Time at = started_ + Time(told.hello_ms());
        generation_->start_deadlines.hello(told.has_hello_ms() ? at : now, now);
    }
}

void Broker::arrival(uint32_t node, wire::NodeArrive arrive, Time now) {
    auto* ranks = arrive.mutable_ranks();
    ranks->erase(std::remove_if(ranks->begin(), ranks->end(),
                                [&](const auto& rank) { return !is_on(rank.rank(), node); }),
                 ranks->end());
    if (!abort_) {
        const std::vector<Answer> answers = generation_->collectives.arrive(arrive, now);
        for (const auto& answer : answers)
            if (!answer.reply.value().empty())
                for (const Caller& caller : answer.callers) members_.note_id(caller.rank, now);
        return deliver(answers);
    }
    for (const auto& rank : *ranks)
        deliver({answer({rank.rank(), rank.id()}, wire::ABORTED, abort_reason())});
}

void Broker::rank_event(uint32_t node, const wire::RankEvent& event, Time now) {
    if (!is_on(event.rank(), node)) return;
    const Membership::Rank& rank = members_.ranks()[event.rank()];
    const bool had_exited = rank.has_exited();
    members_.note(event);
    if (event.has_started() && restart_ && !restart_->is_ending() && members_.all_started())
        restart_done(now);
    if (event.has_first_step()) note_first_step(event.first_step(), now);
    if (event.has_told_to_end()) told_to_end(event.rank(), now);
    if (event.has_stopped()) generation_->stopped.note(event.rank(), event.stopped(), now);
    if (event.has_still()) generation_->hang_watch.note(event.rank(), event.still(), now);
    if (event.has_moves())
        if (const auto lasted = generation_->hang_watch.moves(event.rank(), now); lasted && !is_ending()) {
            out_.log.push_back(where(event.rank()) + " moves again, after " + words(*lasted) +
                               " without progress");
            totals_.set_hang_ms(totals_.hang_ms() + lasted->count());
        }
    if (event.has_exited()) {
        generation_->hang_watch.ended(event.rank(), now);
        generation_->slow_ranks.ended(event.rank());
    }
    if (event.has_vanished() || event.has_goodbye() || event.has_exited())
        generation_->store.drop(event.rank());
    if (event.has_vanished() && !had_exited) generation_->vanished.add(event.rank(), now);
    if (event.has_goodbye()) generation_->collectives.withdraw(event.rank());
    if (!event.has_exited()) return;
    generation_->vanished.remove(event.rank());
    // Calls that wait for it fail with the death, which may be held back.
    if (event.exited() != 0 && !event.cancelled()) return died(event, now);
    if (event.exited() == 0 && rank.said_hello && !rank.said_goodbye && !is_ending())
        out_.log.push_back(where(event.rank()) +
                           " exited with code 0 without a goodbye (it ended early, or "
                           "does not call dp_close)");
    deliver(generation_->collectives.ended(event.rank()));
    finish_world();
}

void Broker::request(uint32_t node, const wire::NodeRequest& request, Time now) {
    if (!is_on(request.rank(), node)) return;
    const Caller caller{request.rank(), request.request().id()};
    deliver(abort_ ? std::vector{answer(caller, wire::ABORTED, abort_reason())}
                   : generation_->store.handle(caller, request.request(), now));
}

void Broker::forget_node(uint32_t node) {
    heartbeats_.forget(node);
    usage_.remove(node);
    stacks_.remove(node);
    authorization_.remove_node(node);
}

BrokerActions Broker::on_connection(const wire::WhoOwns& asked, Time now) {
    for (uint32_t node : authorization_.ask(asked, now))
        send(node, wrap(&wire::ToNode::mutable_who_owns, asked));
    return take();
}

BrokerActions Broker::on_torch_arrival(uint32_t node, Time now) {
    generation_->torch_arrivals.arrive(node, now);
    return take();
}

// They continue without a connection: calls that wait for one of them fail.
void Broker::expire_vanished(Time now) {
    for (uint32_t rank : generation_->vanished.due(now)) {
        if (!is_ending())
            out_.log.push_back(where(rank) +
                               " disconnected without a goodbye, but its task is still running");
        deliver(generation_->collectives.give_up(rank));
    }
}

void Broker::farewell(Time now) {
    finish();
    // A silent node has not heard that the step ends.
    for (uint32_t node = 0; node < members_.nodes().size(); ++node)
        node_is_gone_ |= heartbeats_.silent_for(node, now) > Time(0);
    const std::string why = "the rendezvous daemon on " + members_.nodes()[config_.node_rank].host +
                            " has left (rank 0's node has finished)";
    deliver(generation_->store.end(wire::LOST, why));
    deliver(generation_->collectives.end(wire::LOST, why));
    wire::Farewell last;
    last.set_end_is_known(abort_is_known_ || generation_->done);
    to_all(wrap(&wire::ToNode::mutable_farewell, std::move(last)));
}

// A hello may have been on its way for longer than the calls that followed it, so that their deadlines are a
// little too early: they wait for the step's end, which says who is missing.
bool Broker::ends_soon_after(Time at) const {
    const auto end = abort_ ? std::nullopt : generation_->start_deadlines.end(members_);
    return end && at < *end && *end - at <= kHelloDelay;
}

BrokerActions Broker::tick(Time now) {
    if (has_resigned_) return take();
    tell_deaths(now);
    if (auto notice = generation_->stopped.take(now); notice && !is_ending()) say(*notice);
    // Before the calls expire: they are to fail because a rank is missing, not because of their deadlines.
    const auto late = is_ending() ? std::nullopt : generation_->start_deadlines.check(members_, now);
    if (late && late->too_late)
        abort({late->line});
    else if (late)
        out_.log.push_back(late->line);
    const std::string missing = is_ending() ? "" : generation_->torch_arrivals.notice(members_, now);
    if (!missing.empty()) out_.log.push_back(missing);
    if (!ends_soon_after(now)) {
        deliver(generation_->store.expire(now));
        deliver(generation_->collectives.expire(now));
    }
    if (preflight_) begin_if_fit(now);
    check_succession(now);
    check_heartbeats(now);
    end_without_quorum(now);
    authorization_.expire(now);
    expire_vanished(now);
    dead(held_deaths_.due(now), now);
    check_hang(now);
    tell_observations(now);
    check_restart(now);
    if (leave_at_ && now >= *leave_at_ && !finished_) farewell(now);
    tell_askers(now);
    return take();
}

std::optional<Time> Broker::next_deadline() const {
    if (has_resigned_) return std::nullopt;
    auto calls = earliest({generation_->store.next_deadline(), generation_->collectives.next_deadline()});
    if (calls && ends_soon_after(*calls)) calls = generation_->start_deadlines.end(members_);
    const auto ended = restart_ && restart_->is_ending() ? std::optional(restart_->deadline()) : std::nullopt;
    const auto follows = succession_ && !abort_ ? std::optional(succession_->next_deadline()) : std::nullopt;
    const auto examined = preflight_ && !abort_ ? preflight_->next_deadline() : std::nullopt;
    const auto next = earliest(
        {calls, ended, examined, follows, quorum_lost_at_, authorization_.next_deadline(),
         usage_.next_deadline(), stacks_.next_deadline(), heartbeats_.next_deadline(),
         held_deaths_.next_deadline(), generation_->vanished.next_deadline(), death_reports_.next_deadline(),
         generation_->stopped.next_deadline(), finished_ ? std::nullopt : leave_at_});
    if (is_ending()) return next;
    return earliest({next, generation_->torch_arrivals.next_notice(),
                     generation_->hang_watch.next_deadline(config_.settings.hang_timeout()),
                     generation_->slow_ranks.next_deadline(), transports_.next_deadline(),
                     generation_->start_deadlines.next_deadline(members_)});
}

}  // namespace dp
