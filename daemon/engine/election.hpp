// SPDX-License-Identifier: Apache-2.0
//
// A node's part in electing a new broker after the loss of the last one (--dp-spares, --dp-min-nodes). The last roll
// lists the successors in order. Once a node has ended its ranks, it supports one successor at a time, the first that
// it reaches, and moves on to the next if that one is not elected soon. A successor that most nodes of the roll support
// is elected (quorum.hpp says why there are never two). Pure; the node's engine owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "dp.pb.h"
#include "engine/quorum.hpp"
#include "engine/succession.hpp"
#include "engine/time.hpp"

namespace dp {

// How many successors a roll lists. A search spends kSuccessorConnectTimeout on each that is powered off.
inline constexpr size_t kSuccessors = 4;
// How long to try to connect to a successor, and to wait for its election, before going on to the next.
inline constexpr Time kSuccessorConnectTimeout{1000};
inline constexpr Time kSupportTimeout{1500};
inline constexpr Time kFirstStandsLonger{500};
// After all of them, before the first again.
inline constexpr Time kElectionPause{100};
// After an election has lasted this long, the step ends on this node. Another's ranks may take 21 s to end (restarts.hpp).
inline constexpr Time kElectionTimeout{30000};

// Of a roll; none if it cannot be one of a step of so many nodes.
inline std::vector<uint32_t> nodes_of(const wire::Roll& roll, uint32_t nodes_of_step) {
    const auto is_none = [&](const auto& successor) { return successor.node_rank() >= nodes_of_step; };
    if (roll.broker() >= nodes_of_step || std::ranges::any_of(roll.successors(), is_none)) return {};
    return parse_ranges<uint32_t>(roll.nodes(), nodes_of_step - 1).value_or(std::vector<uint32_t>());
}

class Election {
 public:
    struct Actions {
        std::optional<wire::Roll::Successor> seek;  // connect there, and nowhere else
        bool disconnect =
            false;             // connect to nobody: this node is a candidate itself, or pauses between rounds
        bool elected = false;  // this node is the broker now
        std::vector<uint32_t> refused;    // supporters to send away
        std::optional<std::string> over;  // nobody was found: why
    };

    explicit Election(uint32_t self) : self_(self) {}

    // The broker of a step of so many nodes, while there was one, said so.
    Actions note(const wire::Roll& roll, uint32_t nodes_of_step) {
        roll_ = roll;
        nodes_ = nodes_of(roll, nodes_of_step);
        if (nodes_.empty()) roll_.clear_successors();
        is_settled_ = false;
        return send_away();  // who supports this node because of an earlier one
    }
    void note_settled(uint32_t roll) { is_settled_ |= roll == roll_.number(); }
    const wire::Roll& roll() const { return roll_; }
    bool is_settled() const { return is_settled_; }

    // The broker is lost, and nothing is left of this node's ranks.
    Actions begin(OldWorldEnds ends, Time now) {
        phase_ = Phase::seeking;
        ends_ = ends;
        over_at_ = now + kElectionTimeout;
        target_ = 0;
        return go(now);
    }
    bool is_under_way() const { return phase_ != Phase::none; }
    // What this node says to the successor.
    wire::Support support_message(Time now) const {
        wire::Support out;
        out.set_broker(roll_.broker());
        out.set_roll(roll_.number());
        out.set_is_settled(is_settled_);
        out.set_broker_ends_ms(std::max(Time(0), ends_.broker - now).count());
        out.set_nodes_end_ms(std::max(Time(0), ends_.nodes - now).count());
        return out;
    }
    // While it is under way: who is, or is to be, supported.
    const wire::Roll::Successor& target() const { return roll_.successors(std::max(target_, 0)); }
    // The successor is connected.
    void reached(Time now) { next_at_ = now + kSupportTimeout; }
    // The successor was elected, or this node gives up.
    void found() { phase_ = Phase::none; }
    Actions unreachable(Time now) { return phase_ == Phase::seeking ? next(now) : Actions(); }

    // Another node supports this one, before or after this one has lost the broker.
    Actions support(uint32_t node, const wire::Support& said) {
        Actions actions;
        if (said.broker() != roll_.broker() || said.roll() != roll_.number() || node == self_ ||
            !std::ranges::binary_search(nodes_, node)) {
            actions.refused.push_back(node);
            return actions;
        }
        supporters_.insert(node);
        is_settled_ |= said.is_settled();
        return count();
    }
    void lose(uint32_t node) { supporters_.erase(node); }

    Actions tick(Time now) {
        if (phase_ == Phase::none) return {};
        if (now >= over_at_) return give_up();
        if (now >= next_at_) return next(now);
        return {};
    }
    std::optional<Time> next_deadline() const {
        return phase_ == Phase::none ? std::nullopt : std::optional(std::min(next_at_, over_at_));
    }

 private:
    enum class Phase { none, seeking, candidate } phase_ = Phase::none;
    uint32_t self_;
    wire::Roll roll_;
    std::vector<uint32_t> nodes_;  // of the roll, ascending
    bool is_settled_ = false;
    OldWorldEnds ends_;
    int target_ = 0;  // of the roll's successors
    Time next_at_{};
    Time over_at_{};
    std::set<uint32_t> supporters_;

    Actions go(Time now) {
        Actions actions;
        if (roll_.successors_size() == 0) return give_up();
        const wire::Roll::Successor& target = roll_.successors(target_);
        const bool is_self = target.node_rank() == self_;
        phase_ = is_self ? Phase::candidate : Phase::seeking;
        // The first stands longer, or two that support each other in turn might do so for ever.
        next_at_ = now + (is_self ? kSupportTimeout + (target_ == 0 ? kFirstStandsLonger : Time(0))
                                  : kSuccessorConnectTimeout);
        if (!is_self) {
            actions.seek = target;
            return actions;
        }
        actions = count();
        actions.disconnect = !actions.elected;
        return actions;
    }
    Actions next(Time now) {
        std::vector<uint32_t> refused;
        if (phase_ == Phase::candidate) refused = send_away().refused;
        Actions actions;
        if (++target_ < roll_.successors_size()) {
            actions = go(now);
        } else {  // the round is over; the next one begins after a pause
            target_ = -1;
            phase_ = Phase::seeking;
            // The pause differs by node, so that nodes whose rounds never overlap come to overlap.
            next_at_ = now + kElectionPause + Time(self_ % 8 * 25);
            actions.disconnect = true;
        }
        actions.refused = std::move(refused);
        return actions;
    }
    Actions send_away() {
        Actions actions;
        actions.refused.assign(supporters_.begin(), supporters_.end());
        supporters_.clear();
        return actions;
    }
    Actions count() {
        Actions actions;
        const size_t all = supporters_.size() + 1;
        actions.elected = phase_ == Phase::candidate && (is_settled_ || all >= roll_.settled_by()) &&
                          all >= Quorum::majority(nodes_.size());
        if (actions.elected) {
            phase_ = Phase::none;
            supporters_.clear();  // they stay
        }
        return actions;
    }
    Actions give_up() {
        Actions actions;
        phase_ = Phase::none;
        actions.over = roll_.successors_size() == 0
                           ? "no other node can be the broker"
                           : "no other broker could be elected within " + words(kElectionTimeout);
        return actions;
    }
};

}  // namespace dp
