// SPDX-License-Identifier: Apache-2.0
//
// The broker's handling of failures: ranks that die, nodes that are silent or lost, and who is told about it
// and when. See broker.hpp; ending.hpp has how soon a step ends.
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/wait_status.hpp"
#include "engine/broker.hpp"
#include "framing.hpp"

namespace dp {

// Before any rank starts.
void Broker::refuse(const std::string& why) {
    out_.log.push_back(why);
    abort({why}, true);
}

void Broker::abort(const Death& cause, bool is_told) {
    if (abort_) return;  // the first cause wins: the others follow from it
    if (restart_) {      // which began with a death that was not told yet
        Death both = cause;
        both.reason = restart_->reason() + "; " + cause.reason;
        restart_.reset();
        return abort(both, is_told);
    }
    abort_ = abort_message(cause.reason, cause.grace);
    abort_->set_is_told(is_told);
    abort_->mutable_dead()->Add(cause.ranks.begin(), cause.ranks.end());
    // Before the plan is out, this node's part of the daemon sees to it (Node::abort).
    if (plan_sent_) out_.log.push_back(cause.reason + "; ending the step");
    nccl_warnings_.name(named(cause.ranks));
    to_all(wrap(&wire::ToNode::mutable_abort, *abort_));
    // This ends every waiting call, so that nobody hears of a deadline afterwards.
    generation_->store.end(wire::ABORTED, cause.reason);
    generation_->collectives.end(wire::ABORTED, cause.reason);
}

void Broker::died(const wire::RankEvent& exit, Time now) {
    Death death{where(exit.rank()) + " " + describe_status(exit.exited()) +
                    (exit.has_step() ? " at step " + std::to_string(exit.step()) : ""),
                grace_after(exit.exited()),
                {exit.rank()},
                exit.exited()};
    if (exit.has_step()) death.step = exit.step();
    death.of_survivor = generation_->survivors && generation_->survivors->contains(exit.rank());
    // A step that cannot start is killed by Slurm as a whole, this daemon with it: another node has said why.
    if (!plan_sent_ && exit.exited() == SIGKILL) return held_deaths_.hold(death, now + kPoliteDelay);
    if (held_deaths_.hold_exit(death, exit.exited(), now)) return;
    if (left_by_itself(exit.exited())) dead(held_deaths_.take_all(), now);  // one of them is the cause
    dead(death, now);
}

// If nobody is left, these deaths were the step's own end; where another life may follow, only if Slurm told all.
void Broker::dead(const std::vector<Death>& held, Time now) {
    for (const Death& death : held)
        if (!members_.all_exited() || (config_.settings.restarts_ranks() && !all_told_to_end(now)))
            dead(death, now);
    if (!held.empty()) finish_world();
}

// Ends the step, or, with --dp-on-failure=report, prints a line and fails calls that wait for these ranks, or, with
// restart, ends the generation. A lost spare costs only the line and a new roll.
void Broker::dead(const Death& death, Time now) {
    count(death);
    if (death.of_node && death.ranks.empty() && !abort_) {
        out_.log.push_back(death.reason + "; " + plural(members_.spares(), "spare node") + " left");
        // Where a node with ranks is lost, too, the next plan has it.
        const auto& nodes = members_.nodes();
        const bool is_whole =
            std::ranges::none_of(nodes, [](const auto& n) { return n.lost && !n.ranks.empty(); });
        if (quorum_ && is_whole && !is_ending()) to_all(wrap(&wire::ToNode::mutable_roll, next_roll(now)));
        return;
    }
    if (config_.settings.restarts_ranks()) return end_generation(death, now);
    // A world that has not begun does not begin without a node.
    if (!config_.settings.reports_failures() || (death.of_node && !plan_sent_)) return abort(death);
    if (abort_) return;
    death_reports_.add(death);
    tell_deaths(now);
    for (uint32_t rank : death.ranks) deliver(generation_->collectives.ended(rank));
}

// Of ranks that are being ended nobody dies by himself.
void Broker::count(const Death& death) {
    if (is_ending() || death.of_node) return;  // nodes: see lose()
    if (!death.status)
        totals_.set_other_deaths(totals_.other_deaths() + 1);
    else if (WIFSIGNALED(*death.status))
        totals_.set_signals(totals_.signals() + 1);
    else
        totals_.set_exits(totals_.exits() + 1);
}

void Broker::tell_deaths(Time now) {
    auto deaths = death_reports_.take(members_, now);
    if (!deaths) return;
    out_.log.push_back(deaths->reason() + "; the other ranks continue (--dp-on-failure=report)");
    nccl_warnings_.name(named({deaths->ranks().begin(), deaths->ranks().end()}));
    to_all(wrap(&wire::ToNode::mutable_deaths, std::move(*deaths)));
}

void Broker::check_hang(Time now) {
    if (is_ending()) return;
    const auto hang = generation_->hang_watch.take(members_, config_.settings.hang_timeout(), now);
    if (!hang) return;
    totals_.set_hangs(totals_.hangs() + 1);
    // Where nobody is the culprit, anybody's NCCL may know why all wait.
    std::vector<uint32_t> asked = hang->culprits;
    if (asked.empty())
        for (uint32_t rank = 0; rank < members_.ranks().size(); ++rank) asked.push_back(rank);
    const NcclWarnings::Ranks named_ranks = named(asked);
    if (config_.settings.wants_record()) {  // before anything is done about it
        wire::Hang told;
        told.set_reason(hang->reason);
        told.mutable_culprits()->Add(hang->culprits.begin(), hang->culprits.end());
        to_all(wrap(&wire::ToNode::mutable_hang, std::move(told)));
    }
    ask_nccl(hang->culprits);
    if (config_.settings.reports_failures())
        out_.log.push_back(hang->reason + "; the step goes on (--dp-on-failure=report)");
    else
        dead(Death{hang->reason, kBroken, hang->culprits}, now);
    if (restart_)
        restart_names_ = named_ranks;
    else
        nccl_warnings_.name(named_ranks);
}

// Of ranks that are well.
void Broker::tell_observations(Time now) {
    if (is_ending()) return;
    for (std::string& line : generation_->slow_ranks.take(members_, now)) out_.log.push_back(std::move(line));
    for (std::string& line : transports_.take(members_, now)) out_.log.push_back(std::move(line));
}

// Of all ranks if there are no culprits.
void Broker::ask_nccl(const std::vector<uint32_t>& culprits) {
    if (!config_.settings.wants_nccl_debug()) return;
    wire::AskNccl ask;
    ask.mutable_ranks()->Add(culprits.begin(), culprits.end());
    to_all(wrap(&wire::ToNode::mutable_ask_nccl, std::move(ask)));
}

// By their present names.
NcclWarnings::Ranks Broker::named(const std::vector<uint32_t>& ranks) const {
    NcclWarnings::Ranks named;
    if (!config_.settings.wants_nccl_debug()) return named;
    for (const uint32_t rank : ranks) named[{generation_->number, rank}] = where(rank);
    return named;
}

// The node cannot go on, and has ended its ranks.
void Broker::fault(uint32_t node, const std::string& why, Time now) {
    if (config_.settings.restarts_ranks() && node != config_.node_rank) {
        lose(node, why, Time(0), now);
        return dead(held_deaths_.due(now), now);
    }
    if (can_resign(now)) {  // then the others elect another broker
        out_.log.push_back(why);
        finished_ = has_resigned_ = true;
        return;
    }
    node_is_gone_ = true;
    Death death{why, kBroken, members_.nodes()[node].ranks};
    death.final = true;
    dead(death, now);
}

BrokerActions Broker::on_lost(uint32_t node, const std::string& why, Time now) {
    if (finished_ || !members_.nodes()[node].is_here()) return take();
    lose(node, members_.name_nodes(std::span(&node, 1)) + " is lost: " + why, kLostDelay, now);
    tell_askers(now);
    return take();
}

// The node is gone; the report is held back for the delay.
void Broker::lose(uint32_t node, const std::string& reason, Time delay, Time now) {
    const auto& ranks = members_.nodes()[node].ranks;
    if (!abort_ && !members_.all_exited()) totals_.set_lost_nodes(totals_.lost_nodes() + 1);
    members_.lose(node);
    node_is_gone_ = true;
    forget_node(node);
    Death death{reason, kBroken, ranks};
    death.final = !config_.settings.restarts_ranks();
    death.of_node = true;
    held_deaths_.hold(std::move(death), now + delay);
    for (uint32_t rank : ranks) generation_->store.drop(rank);
    if (quorum_) quorum_->lose(node);
    check_quorum(delay, now);
    renew_if_all_ended(restart_ && restart_->ended(node));
    finish_if_nobody_is_here();
}

void Broker::check_heartbeats(Time now) {
    const Heartbeats::News news = heartbeats_.check(now);
    if (news.send) send_heartbeats(now);
    // After a pause, what nodes have confirmed is read first.
    const bool waits = news.slept && !late_before_;
    if (news.send) late_before_ = news.slept;
    if (news.send && !waits) check_quorum(Time(0), now);
    if (news.notice && !abort_) say(*news.notice);
    for (uint32_t node : news.dead) {
        out_.refused.push_back(node);
        lose(node,
             members_.name_nodes(std::span(&node, 1)) + " is lost: silent for " + words(dead_after(config_)),
             Time(0), now);
    }
}

void Broker::say(const SilenceNotices::Notice& notice) {
    totals_.set_silences(totals_.silences() + static_cast<uint32_t>(notice.silent.size()));
    if (const auto& nodes = notice.silent; !nodes.empty())
        out_.log.push_back(
            members_.name_nodes(nodes) + (nodes.size() == 1 ? " has" : " have") + " been silent for " +
            words(kSilent) + (nodes.size() == 1 ? "" : " or longer") +
            (nodes.size() == 1 ? ": its network, daemon or node" : ": their network, daemons or nodes") +
            " may be down; lost after " + words(dead_after(config_)));
    if (const auto& nodes = notice.speak_again; !nodes.empty())
        out_.log.push_back(members_.name_nodes(nodes) + (nodes.size() == 1 ? " responds" : " respond") +
                           " again after " + (nodes.size() == 1 ? "" : "up to ") + words(notice.longest));
}

void Broker::say(const StoppedRanks::Notice& notice) {
    const auto add = [this](const std::vector<uint32_t>& ranks, const char* one, const char* several) {
        if (!ranks.empty())
            out_.log.push_back(name_ranks(ranks) + " on " + members_.hosts_of(ranks) +
                               (ranks.size() == 1 ? one : several));
    };
    const std::string by = " stopped by a signal (SIGSTOP, scontrol suspend, a debugger?); not killed";
    add(notice.stopped, (" was" + by).c_str(), (" were" + by).c_str());
    add(notice.continued, " continues", " continue");
}

}  // namespace dp
