// SPDX-License-Identifier: Apache-2.0
//
// The broker's restarts (--dp-on-failure=restart): how one generation ends and the next begins. See broker.hpp;
// restarts.hpp has which deaths allow it.
#include <algorithm>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "engine/broker.hpp"
#include "framing.hpp"

namespace dp {

// The most restarts that dpctl history has.
constexpr size_t kMaxRestartsTold = 1000;

void Broker::end_generation(const Death& cause, Time now) {
    if (abort_) return;
    // The ranks of a generation that is being ended die; a node must not.
    if (restart_ && restart_->is_ending() && !cause.final) {
        if (cause.of_node) out_.log.push_back(cause.reason);
        return;
    }
    // Nodes may go once all ranks have ended.
    if (cause.of_node && members_.all_exited()) return;
    const auto end_for_good = [this](Death last, const std::string& why) {
        if (!why.empty()) last.reason += "; " + why;
        abort(last);
    };
    if (!plan_sent_) return end_for_good(cause, "");
    // The last ranks of this generation had not even started.
    if (restart_ && !restart_->is_ending()) restart_done(now);
    if (const auto why_not = restart_policy_.why_not(cause, all_told_to_end(now), now))
        return end_for_good(cause, *why_not);
    if (const auto world = next_world(members_.world(), config_.settings, config_.node_rank); !world) {
        const std::vector<Death> held = held_deaths_.take_all();
        const auto lost = std::ranges::find_if(held, &Death::of_node);
        return end_for_good(lost == held.end() ? cause : *lost, world.error().message);
    }
    const std::vector<uint32_t> here = members_.here();
    restart_names_ = named(cause.ranks);
    restart_.emplace(cause.reason, std::set(here.begin(), here.end()), config_.settings.grace(), now);
    wire::EndGeneration end;
    *end.mutable_why() = abort_message(cause.reason, {Time(0), kEndsAfterTerm});
    end.mutable_why()->mutable_dead()->Add(cause.ranks.begin(), cause.ranks.end());
    to_all(wrap(&wire::ToNode::mutable_end_generation, std::move(end)));
}

// scancel, srun's Ctrl-C, the end of the time: Slurm tells all ranks, on all nodes within a moment.
void Broker::told_to_end(uint32_t rank, Time now) {
    told_to_end_[rank] = now;
    if (restart_ && all_told_to_end(now))
        abort({"the step was told to end before its next generation began"});
}

bool Broker::all_told_to_end(Time now) const {
    return std::ranges::all_of(members_.ranks(), [&](const Membership::Rank& rank) {
        const auto told = told_to_end_.find(rank.told.rank());
        // A lost node cannot tell.
        const bool is_gone = rank.node && members_.nodes()[*rank.node].lost;
        return is_gone || (told != told_to_end_.end() && now - told->second <= kToldHolds);
    });
}

void Broker::check_restart(Time now) {
    if (!restart_ || !restart_->is_ending() || now < restart_->deadline()) return;
    // A silent node may be lost, which is judged elsewhere.
    std::vector<uint32_t> nodes;
    std::ranges::copy_if(restart_->awaited(), std::back_inserter(nodes),
                         [&](uint32_t node) { return heartbeats_.silent_for(node, now) == Time(0); });
    if (nodes.empty()) return restart_->look_again(now + kSilent);
    abort({"the ranks on " + members_.name_nodes(nodes) + " could not be ended within " +
           words(config_.settings.grace() + kEndsAfterTerm + kEndsAfterKill) +
           " (does a process wait for a file system?), so the next generation cannot begin"});
}

void Broker::generation_ended(uint32_t node, const wire::GenerationEnded& ended) {
    if (!restart_) return;
    restart_->add_survivors(of_node(ended.rejoined(), node));
    if (ended.has_step()) steps_repeated_.ended_at(ended.step());
    renew_if_all_ended(restart_->ended(node));
}

void Broker::renew_if_all_ended(bool all_ended) {
    if (all_ended && !abort_) out_.renew_ports = true;
}

BrokerActions Broker::on_ports(const Try<MasterPorts>& ports, Time now) {
    if (has_resigned_ || abort_ || !restart_ || !restart_->is_ending() || !restart_->awaited().empty())
        return take();
    if (ports) {
        ports_ = *ports;
        begin_generation(now);
    } else {
        abort({"the next generation cannot begin: " + ports.error().message});
    }
    return take();
}

void Broker::begin_generation(Time now) {
    // Deaths of the last generation are over.
    for (const Death& death : held_deaths_.take_all()) {
        if (death.final) return abort(death);
        if (death.of_node) out_.log.push_back(death.reason);
    }
    const auto world = next_world(members_.world(), config_.settings, config_.node_rank);
    if (!world) return abort({world.error().message});
    const std::vector<uint32_t> replaced = replaced_ranks(members_.world(), *world, restart_->survivors());
    told_to_end_.clear();  // their nodes tell again
    totals_.set_restarts(totals_.restarts() + 1);
    members_.begin_generation(*world);
    restart_->note_change(change(*world));
    restart_->begin_next();
    usage_.forget_answers();
    auto survivors = survivors_of_failure(replaced, world->size);
    totals_.set_hang_ms(totals_.hang_ms() + generation_->hang_watch.lasts(now).count());
    generation_.emplace(generation_->number + 1, members_, config_.settings, now);
    transports_.begin_generation();
    if (replaced.size() < world->size) generation_->replaced = compress_ranks(replaced);
    generation_->survivors = std::move(survivors);
    restart_policy_.begin(now);
    succession_.reset();
    send_plan(now);
}

// Of the next generation. Where one failure begins several generations, those that it has not reached yet.
std::set<uint32_t> Broker::survivors_of_failure(const std::vector<uint32_t>& replaced, uint32_t size) const {
    const auto& before = generation_->survivors;
    const bool is_same_failure = before && restart_policy_.is_young(restart_->died());
    std::set<uint32_t> survivors;
    for (uint32_t rank = 0; rank < size; ++rank)
        if (!std::ranges::binary_search(replaced, rank) && (!is_same_failure || before->contains(rank)))
            survivors.insert(rank);
    return survivors;
}

std::string Broker::change(const NextWorld& world) const {
    std::vector<std::string> came;
    for (const uint32_t node : world.came) came.push_back(members_.nodes()[node].host);
    std::string out;
    if (!came.empty())
        out += " with " + std::string(came.size() == 1 ? "spare node " : "spare nodes ") +
               compress_hostlist(came);
    if (world.shrank)
        out += std::string(came.empty() ? " with " : " and ") + plural(world.size, "rank") + " on " +
               plural(static_cast<size_t>(std::ranges::count_if(
                          world.ranks, [](const auto& ranks) { return !ranks.empty(); })),
                      "node");
    return out;
}

// The last rank of the next generation has started, or that generation ends already.
void Broker::restart_done(Time now) {
    out_.log.push_back(restart_->line(generation_->number, now));
    nccl_warnings_.name(restart_names_);
    auto& told = restarts_.emplace_back();
    told.set_generation(generation_->number);
    told.set_died_ms((restart_->died() - started_).count());
    told.set_began_ms((now - started_).count());
    told.set_reason(restart_->reason());
    if (restarts_.size() > kMaxRestartsTold) restarts_.pop_front();
    restart_.reset();
    tell_first_step();
}

// Only the first report counts, from whichever node. It may come before all ranks are known to have started.
void Broker::note_first_step(uint64_t step, Time now) {
    if (generation_->first_step) return;
    generation_->first_step.emplace();
    generation_->first_step->set_step(step);
    generation_->first_step->set_at_ms((now - started_).count());
    tell_first_step();
}

void Broker::tell_first_step() {
    auto& first = generation_->first_step;
    if (!first || restart_ || restarts_.empty() || is_ending()) return;
    const auto repeated = steps_repeated_.begins_with(first->step());
    if (!repeated) return;
    first->set_repeated(*repeated);
    auto& told = restarts_.back();
    *told.mutable_first_step() = *first;
    out_.log.push_back("generation " + std::to_string(told.generation()) + " took its first step, " +
                       std::to_string(first->step()) + ", " +
                       in_seconds(Time(first->at_ms() - told.died_ms())) + " after the failure; " +
                       plural(*repeated, "step") + " repeated");
}

// The keepers of ranks that have ended stay until all have: another death may begin their next life.
void Broker::finish_world() {
    if (!config_.settings.restarts_ranks() || abort_ || restart_ || held_deaths_.next_deadline() ||
        !members_.all_exited() || std::exchange(generation_->done, true))
        return;
    to_all(wrap(&wire::ToNode::mutable_world_done));
}

}  // namespace dp
