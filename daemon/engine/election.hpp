// SPDX-License-Identifier: Apache-2.0
//
// A node's part in finding the broker after the one that it has lost (--dp-spares, --dp-min-nodes). The last roll
// names the successors in order. A node that has ended its ranks supports the first of them that it reaches, one at a
// time, and is free to go on to the next until that is elected; whoever has the support of most nodes of the roll is
// (quorum.hpp says why there are never two). Pure; the node's engine owns it.
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

// How many successors a roll names. Whoever looks for one spends kReaches on a node without power.
inline constexpr size_t kSuccessors = 4;
// How long to try to connect to a successor, and to wait for its election, before going on to the next.
inline constexpr Time kReaches{1000};
inline constexpr Time kSupports{1500};
// After all of them, before the first again.
inline constexpr Time kElectionPause{100};
// After this long without a broker the node's step ends.
inline constexpr Time kElectionLasts{10000};

// Of a roll; none if it cannot be one of a step of so many nodes.
inline std::vector<uint32_t> nodes_of(const wire::Roll& roll, uint32_t nodes_of_step) {
    const auto is_none = [&](const auto& successor) { return successor.node_rank() >= nodes_of_step; };
    if (roll.broker() >= nodes_of_step || std::ranges::any_of(roll.successors(), is_none)) return {};
    return parse_ranges<uint32_t>(roll.nodes(), nodes_of_step - 1).value_or(std::vector<uint32_t>());
}

class Election {
 public:
    struct Step {
        std::optional<wire::Roll::Successor> seek;  // connect there, and nowhere else
        bool stay = false;                          // connect nowhere: this node stands itself
        bool elected = false;                       // this node is the broker now
        std::vector<uint32_t> refused;              // supporters to send away
        std::optional<std::string> over;            // nobody was found: why
    };

    explicit Election(uint32_t self) : self_(self) {}

    // The broker of a step of so many nodes, while there was one, said so.
    Step note(const wire::Roll& roll, uint32_t nodes_of_step) {
        roll_ = roll;
        nodes_ = nodes_of(roll, nodes_of_step).size();
        if (nodes_ == 0) roll_.clear_successors();
        is_settled_ = false;
        return send_away();  // who supports this node because of an earlier one
    }
    void note_settled(uint32_t roll) { is_settled_ |= roll == roll_.number(); }
    const wire::Roll& roll() const { return roll_; }
    bool is_settled() const { return is_settled_; }

    // The broker is lost, and nothing is left of this node's ranks.
    Step begin(OldWorldEnds ends, Time now) {
        phase_ = Phase::seeking;
        ends_ = ends;
        over_at_ = now + kElectionLasts;
        target_ = 0;
        return go(now);
    }
    bool is_under_way() const { return phase_ != Phase::none; }
    // What this node says to the successor.
    wire::Candidature candidature(Time now) const {
        wire::Candidature out;
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
    void reached(Time now) { next_at_ = now + kSupports; }
    // It was elected. From here on it is the broker, and its loss begins another election.
    void found() { phase_ = Phase::none; }
    Step unreachable(Time now) { return phase_ == Phase::seeking ? next(now) : Step(); }

    // Another node supports this one, before or after this one has lost the broker.
    Step support(uint32_t node, const wire::Candidature& said) {
        Step step;
        if (said.broker() != roll_.broker() || said.roll() != roll_.number()) {
            step.refused.push_back(node);
            return step;
        }
        supporters_.insert(node);
        is_settled_ |= said.is_settled();
        return count();
    }
    void lose(uint32_t node) { supporters_.erase(node); }

    Step tick(Time now) {
        if (phase_ == Phase::none) return {};
        if (now >= over_at_) return give_up();
        if (now >= next_at_) return next(now);
        return {};
    }
    std::optional<Time> next_deadline() const {
        return phase_ == Phase::none ? std::nullopt : std::optional(std::min(next_at_, over_at_));
    }

 private:
    enum class Phase { none, seeking, standing } phase_ = Phase::none;
    uint32_t self_;
    wire::Roll roll_;
    size_t nodes_ = 0;  // of the roll
    bool is_settled_ = false;
    OldWorldEnds ends_;
    int target_ = 0;  // of the roll's successors
    Time next_at_{};
    Time over_at_{};
    std::set<uint32_t> supporters_;

    Step go(Time now) {
        Step step;
        if (roll_.successors_size() == 0) return give_up();
        const wire::Roll::Successor& target = roll_.successors(target_);
        const bool is_self = target.node_rank() == self_;
        phase_ = is_self ? Phase::standing : Phase::seeking;
        next_at_ = now + (is_self ? kSupports : kReaches);
        if (!is_self) {
            step.seek = target;
            return step;
        }
        step = count();
        step.stay = !step.elected;
        return step;
    }
    Step next(Time now) {
        std::vector<uint32_t> refused;
        if (phase_ == Phase::standing) refused = send_away().refused;
        Step step;
        if (++target_ < roll_.successors_size()) {
            step = go(now);
        } else {  // once round; a moment later again
            target_ = -1;
            phase_ = Phase::seeking;
            next_at_ =
                now + kElectionPause + Time(self_ % 8 * 25);  // who is out of step with another gets into it
            step.stay = true;
        }
        step.refused = std::move(refused);
        return step;
    }
    Step send_away() {
        Step step;
        step.refused.assign(supporters_.begin(), supporters_.end());
        supporters_.clear();
        return step;
    }
    Step count() {
        Step step;
        const size_t all = supporters_.size() + 1;
        step.elected = phase_ == Phase::standing && (is_settled_ || all >= roll_.settled_by()) &&
                       all >= Quorum::majority(nodes_);
        if (step.elected) {
            phase_ = Phase::none;
            supporters_.clear();  // they stay
        }
        return step;
    }
    Step give_up() {
        Step step;
        phase_ = Phase::none;
        step.over = roll_.successors_size() == 0
                        ? "no other node can be the broker"
                        : "no other broker could be elected within " + words(kElectionLasts);
        return step;
    }
};

}  // namespace dp
