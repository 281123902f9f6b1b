// SPDX-License-Identifier: Apache-2.0
//
// The broker, where something goes wrong: ranks that die, nodes that are silent or lost, and who is told of
// it and when. See broker.hpp; ending.hpp has how soon a step ends.
#include <algorithm>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/wait_status.hpp"
#include "engine/broker.hpp"

namespace dp {

wire::Abort Broker::abort_message(Patience patience) const {
    wire::Abort message;
    message.set_reason(abort_reason_);
    message.set_term_after_ms(static_cast<uint32_t>(patience.term.count()));
    message.set_kill_after_ms(static_cast<uint32_t>(patience.kill.count()));
    for (uint32_t rank : abort_dead_) message.add_dead(rank);
    return message;
}

void Broker::abort(const std::string& reason, Patience patience, const std::vector<uint32_t>& dead) {
    if (aborted_) return;  // the first cause wins; what follows from it is no cause
    aborted_ = true;
    abort_reason_ = reason;
    abort_dead_ = dead;
    suspicions_.clear();
    // Before the plan is out, the waiting tasks of this node print the reason themselves.
    if (plan_sent_) out_.log.push_back(reason + "; ending the step");
    wire::ToNode message;
    *message.mutable_abort() = abort_message(patience);
    to_all(message);
    // That ends every call that waits; nobody is to hear of a deadline after it.
    store_.end(wire::ABORTED, reason);
    meetings_.end(wire::ABORTED, reason);
}

void Broker::died(const wire::RankEvent& exit, Time now) {
    const uint32_t rank = exit.rank();
    const int wait_status = exit.exited();
    const std::string reason = where(rank) + " " + describe_status(wait_status) +
                               (exit.has_step() ? " at step " + std::to_string(exit.step()) : "");
    const Patience patience = patience_after(wait_status);
    if (patience == kTold) {
        suspicions_.push_back({reason, kTold, now + kPoliteDelay, {rank}});
        return;
    }
    if (left_by_itself(wait_status) && !suspicions_.empty()) {
        // It follows from a death that may turn out to be none: it waits with it.
        if (suspicions_.front().patience == kTold) {
            suspicions_.push_back({reason, patience, suspicions_.front().until, {rank}});
            return;
        }
        tell_suspicions(suspicions_.size(), now);
    }
    dead(reason, patience, {rank}, now);
}

// So many of the oldest.
void Broker::tell_suspicions(size_t count, Time now) {
    for (; count > 0 && !suspicions_.empty(); --count) {
        const Suspicion cause = std::move(suspicions_.front());
        suspicions_.pop_front();
        if (!members_.all_exited()) dead(cause.reason, cause.patience, cause.ranks, now);
    }
}

// The end of the step, or with --dp-on-failure=report a line and the end of what waits for these ranks.
void Broker::dead(const std::string& reason, Patience patience, const std::vector<uint32_t>& ranks,
                  Time now) {
    if (!config_.report_failures) return abort(reason, patience, ranks);
    if (aborted_) return;
    if (untold_causes_++ == 0) untold_.set_reason(reason);
    for (uint32_t rank : ranks) untold_.add_ranks(rank);
    if (now >= quiet_until_) tell_deaths(now);
    for (uint32_t rank : ranks) deliver(meetings_.ended(rank));
}

// The first at once; what follows from it, which may be all the others, together.
void Broker::tell_deaths(Time now) {
    std::vector<uint32_t> ranks(untold_.ranks().begin(), untold_.ranks().end());
    std::sort(ranks.begin(), ranks.end());
    if (std::exchange(untold_causes_, 0) > 1)
        untold_.set_reason(name_ranks(ranks) + " (" + members_.hosts_of(ranks) + ") died, too; first " +
                           untold_.reason());
    out_.log.push_back(untold_.reason() + "; the others go on (--dp-on-failure=report)");
    quiet_until_ = now + kDeathsTogether;
    all_deaths_.mutable_ranks()->MergeFrom(untold_.ranks());
    if (all_deaths_.reason().empty()) all_deaths_.set_reason(untold_.reason());
    wire::ToNode message;
    message.mutable_deaths()->Swap(&untold_);
    untold_.Clear();
    to_all(message);
}

BrokerActions Broker::on_lost(uint32_t node, const std::string& why, Time now) {
    const auto& state = members_.nodes()[node];
    if (finished_ || !state.joined || state.left || state.lost) return take();
    lose(node, why, kLostDelay, now);
    tell_usage(now);
    return take();
}

// Known to be gone; the news is held back for the delay.
void Broker::lose(uint32_t node, const std::string& why, Time delay, Time now) {
    const auto& ranks = members_.nodes()[node].ranks;
    members_.lose(node);
    node_is_gone_ = true;
    forget_node(node);
    suspicions_.push_back({named(std::span(&node, 1)) + " is lost: " + why, kBroken, now + delay, ranks});
    for (uint32_t rank : ranks) store_.drop(rank);
    finish_if_nobody_is_here();
}

void Broker::check_heartbeats(Time now) {
    const Heartbeats::News news = heartbeats_.check(now);
    if (news.send) {
        wire::ToNode message;
        message.mutable_alive();
        for (uint32_t node = 0; node < members_.nodes().size(); ++node) {
            const auto& state = members_.nodes()[node];
            if (node != config_.own_node && state.joined && !state.left && !state.lost) send(node, message);
        }
    }
    if (news.notice && !aborted_) say(*news.notice);
    for (uint32_t node : news.dead) {
        out_.refused.push_back(node);
        lose(node, "silent for " + words(config_.dead_after), Time(0), now);
    }
}

// "node gpu02 (ranks 8-15)", "2 nodes (gpu[02-03], ranks 8-23)".
std::string Broker::named(std::span<const uint32_t> nodes) const {
    std::vector<std::string> hosts;
    std::vector<uint32_t> ranks;
    for (uint32_t node : nodes) {
        const auto& state = members_.nodes()[node];
        hosts.push_back(state.host);
        ranks.insert(ranks.end(), state.ranks.begin(), state.ranks.end());
    }
    std::sort(ranks.begin(), ranks.end());
    const std::string where = compress_hostlist(hosts);
    return (nodes.size() == 1 ? "node " + where + " (" : plural(nodes.size(), "node") + " (" + where + ", ") +
           name_ranks(ranks) + ")";
}

void Broker::say(const SilenceNotices::Notice& notice) {
    if (const auto& nodes = notice.silent; !nodes.empty())
        out_.log.push_back(named(nodes) + (nodes.size() == 1 ? " has" : " have") + " been silent for " +
                           words(kSilent) + (nodes.size() == 1 ? "" : " or longer") +
                           ": network, daemon or node stands still; lost after " + words(config_.dead_after));
    if (const auto& nodes = notice.speak_again; !nodes.empty())
        out_.log.push_back(named(nodes) + (nodes.size() == 1 ? " speaks" : " speak") + " again, after " +
                           (nodes.size() == 1 ? "" : "up to ") + words(notice.longest));
}

void Broker::say_who_stands_still() {
    say_stopped_at_.reset();
    say_stopped(std::exchange(stopped_, {}),
                " stopped by a signal (SIGSTOP, scontrol suspend, a debugger?); left alone");
    say_stopped(std::exchange(continued_, {}), " going on");
}

void Broker::say_stopped(const std::vector<uint32_t>& ranks, const std::string& what) {
    if (ranks.empty() || aborted_) return;
    std::vector<uint32_t> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    out_.log.push_back(name_ranks(sorted) + " on " + members_.hosts_of(sorted) + what);
}

}  // namespace dp
