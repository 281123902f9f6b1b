// SPDX-License-Identifier: Apache-2.0
//
// Towards the broker and the launcher, and time; towards the ranks: node_ranks.cpp. See node.hpp.
#include "engine/node.hpp"

#include <algorithm>
#include <csignal>

#include "base/text.hpp"
#include "framing.hpp"

namespace dp {
namespace {

// The one peer of a relay's heartbeats.
constexpr Heartbeats::Peer kBroker = 0;

}  // namespace

Node::Node(NodeConfig config, Time now)
    : config_(std::move(config)),
      started_(now),
      exited_(config_.ranks.size(), false),
      looks_(config_.ranks.size(), 0),
      gatherings_(config_.ranks),
      heartbeats_(config_.dead_after) {}

NodeActions Node::take() {
    return std::exchange(out_, {});
}

void Node::tell_broker(wire::FromNode message) {
    if (broker_gone_) return;
    // In the order in which it happened.
    tell_good_news();
    if (tell_hellos_at_) tell_hellos();
    (joined_ ? out_.to_broker : queued_).push_back(std::move(message));
}

void Node::tell_good_news() {
    tell_good_news_at_.reset();
    // Not through tell_broker: the hellos that wait now came after them.
    for (auto& message : std::exchange(good_news_, {}))
        if (!broker_gone_) (joined_ ? out_.to_broker : queued_).push_back(std::move(message));
}

void Node::tell_hellos() {
    tell_hellos_at_.reset();
    wire::FromNode message;
    message.mutable_hellos()->Swap(&hellos_);
    hellos_.Clear();
    tell_broker(std::move(message));
}

void Node::tell_arrival(wire::NodeArrive arrive) {
    wire::FromNode message;
    *message.mutable_arrive() = std::move(arrive);
    tell_broker(std::move(message));
}

void Node::rank_event(uint32_t rank, const Fill& fill) {
    wire::FromNode message;
    message.mutable_rank()->set_rank(rank);
    fill(*message.mutable_rank());
    tell_broker(std::move(message));
}

void Node::good_news(uint32_t rank, Time now, const Fill& fill) {
    if (tell_hellos_at_) tell_hellos();
    auto& message = good_news_.emplace_back();
    message.mutable_rank()->set_rank(rank);
    fill(*message.mutable_rank());
    if (!tell_good_news_at_) tell_good_news_at_ = now + kGoodNews;
}

// ---- the broker ----

NodeActions Node::on_joined(const std::string& address, Time now) {
    joined_ = true;
    if (!config_.with_broker) heartbeats_.watch(kBroker, now);
    address_ = address;
    wire::FromNode message;
    message.mutable_join()->set_node_rank(config_.node_rank);
    message.mutable_join()->set_host(config_.host);
    message.mutable_join()->set_address(address);
    message.mutable_join()->set_clock_ms(now.count());
    for (uint32_t rank : config_.ranks) message.mutable_join()->add_ranks(rank);
    for (const auto& one : config_.addresses) message.mutable_join()->add_addresses(one);
    for (const auto& one : config_.tiles_for_table) message.mutable_join()->add_tiles(one);
    out_.to_broker.push_back(std::move(message));
    std::move(queued_.begin(), queued_.end(), std::back_inserter(out_.to_broker));
    queued_.clear();
    return take();
}

NodeActions Node::on_broker(const wire::ToNode& message, Time now) {
    heartbeats_.heard(kBroker, now);
    switch (message.kind_case()) {
        case wire::ToNode::kPlan:
            if (!published_) {
                published_ = true;
                out_.plan = NodePlan{message.plan().master_addr(),
                                     static_cast<uint16_t>(message.plan().master_port()),
                                     static_cast<uint16_t>(message.plan().coordinator_port()), address_,
                                     message.plan().table()};
            }
            break;
        case wire::ToNode::kReply: {
            std::vector<Caller> callers;
            for (const auto& target : message.reply().targets())
                callers.push_back({target.rank(), target.id()});
            answer(callers, message.reply().reply());
            break;
        }
        case wire::ToNode::kAbort:
            abort(message.abort(), config_.with_broker || config_.own_stderr, now);
            break;
        case wire::ToNode::kDeaths:
            tell_deaths(message.deaths());
            break;
        case wire::ToNode::kWhoOwns: {
            const auto& asked = message.who_owns();
            out_.lookups.push_back({asked.connection(),
                                    {asked.client_address(), static_cast<uint16_t>(asked.client_port()),
                                     asked.server_address(), static_cast<uint16_t>(asked.server_port())}});
            break;
        }
        case wire::ToNode::kStatus: {
            if (asking_.erase(message.status().connection()) == 0) break;
            wire::ToRank told;
            *told.mutable_status() = message.status().status();
            out_.to_ranks.emplace_back(message.status().connection(), std::move(told));
            out_.close.push_back(message.status().connection());
            break;
        }
        case wire::ToNode::kMeasure:
            measure();
            break;
        case wire::ToNode::kUsage: {
            // Who asked may ask again.
            if (asking_.erase(message.usage().connection()) == 0) break;
            wire::ToRank told;
            *told.mutable_usage() = message.usage().usage();
            out_.to_ranks.emplace_back(message.usage().connection(), std::move(told));
            break;
        }
        case wire::ToNode::kFarewell:
            broker_gone_ = true;
            heartbeats_.forget(kBroker);
            end_questions("the rendezvous daemon on " + config_.broker_host + " has left");
            end_calls("the rendezvous daemon on " + config_.broker_host +
                      " has left (rank 0's node has finished)");
            if (told_) finished_ = true;
            break;
        case wire::ToNode::kAlive:
        case wire::ToNode::KIND_NOT_SET:
            break;
    }
    return take();
}

void Node::on_other_version(uint32_t protocol) {
    other_version_ = "what answers there speaks protocol " + std::to_string(protocol) + " and this node " +
                     std::to_string(kProtocol) + "; install the same version of slurm-dp on both";
}

NodeActions Node::on_owner(uint64_t connection, const SocketOwner& owner) {
    wire::FromNode message;
    message.mutable_owner()->set_connection(connection);
    if (owner.uid)
        message.mutable_owner()->set_uid(*owner.uid);
    else
        message.mutable_owner()->set_problem(owner.problem);
    tell_broker(std::move(message));
    return take();
}

void Node::measure() {
    auto& connections = out_.measure.emplace(config_.ranks.size());
    for (size_t local = 0; local < config_.ranks.size(); ++local)
        if (auto found = connection_.find(config_.ranks[local]); found != connection_.end())
            connections[local] = found->second;
}

NodeActions Node::on_measured(wire::NodeUsage usage) {
    wire::FromNode message;
    *message.mutable_usage() = std::move(usage);
    tell_broker(std::move(message));
    return take();
}

NodeActions Node::on_broker_lost(const std::string& why, Time now) {
    lose_broker(why, joined_ ? kLostDelay : Time(0), now);
    return take();
}

// Known to be gone; the news is held back for the delay.
void Node::lose_broker(const std::string& why, Time delay, Time now) {
    if (broker_gone_) return;
    broker_gone_ = true;
    heartbeats_.forget(kBroker);
    end_questions("the rendezvous daemon on " + config_.broker_host + " is gone: " + why);
    if (ending_) {
        if (told_) finished_ = true;
        return;
    }
    if (abort_) return;
    outlived_broker_ = published_ && !config_.report_failures;
    loss_ = {joined_ ? "node " + config_.host + " lost the rendezvous daemon on " + config_.broker_host +
                           ": " + why
                     : why,
             now + delay};
    if (delay == Time(0)) tell_loss(now);
}

void Node::tell_loss(Time now) {
    const std::string reason = std::exchange(loss_, std::nullopt)->reason;
    if (ending_ || abort_) return;
    if (config_.report_failures && published_) {
        if (is_witness())
            out_.log.push_back(reason + "; its ranks go on without it (--dp-on-failure=report)");
        end_calls(reason);
        wire::Deaths nobody;
        nobody.set_reason(reason + "; nobody watches any more");
        tell_deaths(nobody);
        return;
    }
    // Without a plan the waiting tasks of this node print the reason themselves.
    if (published_ && is_witness()) out_.log.push_back(reason + "; ending the step");
    wire::Abort message;
    message.set_reason(reason);
    message.set_term_after_ms(static_cast<uint32_t>(kBroken.term.count()));
    message.set_kill_after_ms(static_cast<uint32_t>(kBroken.kill.count()));
    abort(std::move(message), !joined_ || is_witness(), now);
}

void Node::abort(wire::Abort message, bool is_ours_to_tell, Time now) {
    if (abort_) return;
    message.set_reason(printable(message.reason(), 600));
    abort_ = message;
    if (!published_) {
        published_ = true;
        out_.no_plan = is_ours_to_tell ? message.reason() : "";  // its waiting tasks print it
    } else if (config_.own_stderr && !config_.with_broker && !broker_gone_) {
        out_.log.push_back(message.reason() + "; ending the step");
    }
    wire::ToRank told;
    *told.mutable_abort() = message;
    tell_ranks(std::move(told));
    term_at_ = now + Time(message.term_after_ms());
    kill_at_ = now + Time(message.kill_after_ms());
}

// ---- the launcher ----

void Node::report_exit(uint32_t rank, Time now) {
    auto found = exits_.find(rank);
    if (found == exits_.end()) return;
    const Exit exit = found->second;
    exits_.erase(found);
    for (auto& arrived : gatherings_.give_up(rank, now)) tell_arrival(std::move(arrived));
    auto fill = [&](wire::RankEvent& e) {
        e.set_exited(exit.status);
        e.set_cancelled(exit.cancelled);
        if (auto step = steps_.find(rank); step != steps_.end()) e.set_step(step->second);
    };
    if (exit.status == 0)
        good_news(rank, now, fill);
    else
        rank_event(rank, fill);
    leave_if_all_told();
}

void Node::leave_if_all_told() {
    if (!ending_ || told_ || !exits_.empty()) return;
    told_ = true;
    // Without a broker to tell there is nothing to wait for.
    if (broker_gone_ || !joined_) {
        finished_ = true;
        return;
    }
    wire::FromNode message;
    message.mutable_leave();
    tell_broker(std::move(message));
}

NodeActions Node::on_control(const ControlEvent& event, Time now) {
    if (event.kind == ControlEvent::Kind::end) {
        ending_ = true;
        leave_if_all_told();
        return take();
    }
    if (event.local_rank >= config_.ranks.size()) return take();
    const uint32_t rank = config_.ranks[event.local_rank];
    if (event.kind == ControlEvent::Kind::tiles) {
        if (event.local_rank < config_.tiles_for_table.size())
            config_.tiles_for_table[event.local_rank] = event.tiles;
    } else if (event.kind == ControlEvent::Kind::task) {
        rank_event(rank, [&](wire::RankEvent& e) {
            e.set_started(event.value);
            e.set_at_ms(now.count());
        });
    } else if (!exited_[event.local_rank]) {
        exited_[event.local_rank] = true;
        exits_[rank] = {event.value, cancelled_ || abort_.has_value(), now + kLastWords};
        if (!connection_.contains(rank)) report_exit(rank, now);
    }
    return take();
}

NodeActions Node::on_look(uint32_t local_rank, bool stopped) {
    constexpr uint32_t kEnough = 2;
    if (local_rank >= looks_.size() || exited_[local_rank]) return take();
    uint32_t& looks = looks_[local_rank];
    const uint32_t before = std::exchange(looks, stopped ? std::min(looks + 1, kEnough) : 0);
    if ((before == kEnough) != (looks == kEnough))
        rank_event(config_.ranks[local_rank], [&](wire::RankEvent& e) { e.set_stopped(stopped); });
    return take();
}

NodeActions Node::on_launcher_lost() {
    if (ending_) return take();
    const std::string reason = config_.launcher + " on " + config_.host + " is gone; its " +
                               plural(config_.ranks.size(), "rank") +
                               (config_.ranks.size() == 1 ? " is" : " are") + " ended";
    out_.signal_ranks = SIGKILL;
    wire::FromNode fault;
    fault.mutable_fault()->set_reason(reason);
    tell_broker(std::move(fault));
    ending_ = true;
    exits_.clear();
    leave_if_all_told();
    return take();
}

// ---- time ----

void Node::check_heartbeats(Time now) {
    const Heartbeats::News news = heartbeats_.check(now);
    if (news.send) {
        wire::FromNode message;
        message.mutable_alive()->set_clock_ms(now.count());
        tell_broker(std::move(message));
    }
    if (news.notice && speaks_for_all()) {
        const std::string daemon = "the rendezvous daemon on " + config_.broker_host;
        out_.log.push_back(
            news.notice->silent.empty()
                ? daemon + " speaks again, after " + words(news.notice->longest)
                : daemon + " has been silent for " + words(kSilent) +
                      ": its network, the daemon or the node itself stands still; it counts as lost after " +
                      words(config_.dead_after));
    }
    if (!news.dead.empty()) lose_broker("it has been silent for " + words(config_.dead_after), Time(0), now);
}

// Whether this node says that the broker is gone, which all see.
bool Node::is_witness() const {
    return config_.own_stderr || config_.node_rank <= kWitnesses;
}

// Where all nodes see the same, one of them says it; the broker is on one of the first two nearly always.
bool Node::speaks_for_all() const {
    return !config_.with_broker && config_.node_rank <= 1;
}

NodeActions Node::tick(Time now) {
    if (!joined_ && !broker_gone_ && now >= started_ + config_.timeout)
        lose_broker("this node could not reach the rendezvous daemon on " + config_.broker_host +
                        (config_.broker_addresses.empty() ? "" : " (" + config_.broker_addresses + ")") +
                        " within " + std::to_string(config_.timeout.count() / 1000) + " s (--dp-timeout): " +
                        (other_version_.empty() ? "is its node up, and may this node connect to it?"
                                                : other_version_),
                    Time(0), now);
    if (loss_ && now >= loss_->until) tell_loss(now);
    std::vector<uint32_t> overdue;
    for (const auto& [rank, exit] : exits_)
        if (now >= exit.deadline) overdue.push_back(rank);
    for (uint32_t rank : overdue) report_exit(rank, now);
    if (tell_good_news_at_ && now >= *tell_good_news_at_) tell_good_news();
    if (tell_hellos_at_ && now >= *tell_hellos_at_) tell_hellos();
    for (auto& arrived : gatherings_.expire(now)) tell_arrival(std::move(arrived));
    check_heartbeats(now);
    if (term_at_ && now >= *term_at_) {
        term_at_.reset();
        out_.signal_ranks = SIGTERM;
    }
    if (kill_at_ && now >= *kill_at_) {
        kill_at_.reset();
        out_.signal_ranks = SIGKILL;
    }
    return take();
}

std::optional<Time> Node::next_deadline() const {
    std::optional<Time> next = earlier(term_at_, kill_at_);
    next = earlier(earlier(next, tell_hellos_at_), earlier(tell_good_news_at_, gatherings_.next_deadline()));
    next = earlier(next, heartbeats_.next_deadline());
    if (loss_) next = earlier(next, loss_->until);
    for (const auto& [rank, exit] : exits_) next = earlier(next, exit.deadline);
    if (!joined_ && !broker_gone_) next = earlier(next, started_ + config_.timeout);
    return next;
}

}  // namespace dp
