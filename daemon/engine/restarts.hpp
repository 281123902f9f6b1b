// SPDX-License-Identifier: Apache-2.0
//
// --dp-on-failure=restart: whether a death begins the world's next generation or ends the step, and what is known
// of a restart that is under way. Pure; the broker owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "common/options.hpp"
#include "common/wait_status.hpp"
#include "engine/deaths.hpp"
#include "engine/time.hpp"

namespace dp {

// So many generations in a row that got nowhere end the step, whatever --dp-restarts says.
inline constexpr uint32_t kMostFruitless = 3;  // the third
// A generation got somewhere if the dead rank had come to a training step (dp_at_step) that no dead rank had come to
// before. If it reports none, it must have lived this long instead. A process that is older than the failure and dies so soon
// after it dies of the same: it costs a restart, but does not count. (Where memory is short, the kernel kills rank after rank.)
inline constexpr Time kFruitfulLife{10000};
// How long ranks may take to end after SIGTERM when a generation is ended, and the nodes after SIGKILL to say that
// nothing is left (a process that waits for a dead file system cannot be killed).
inline constexpr Time kEndsAfterTerm{1000};
inline constexpr Time kEndsAfterKill{20000};

class RestartPolicy {
 public:
    // `used`: by earlier brokers.
    explicit RestartPolicy(const Settings& settings, uint32_t used = 0)
        : restarts_(settings.restarts.value_or(0)),
          final_exit_(settings.final_exit.value_or(ExitCodes())),
          used_(used) {}

    uint32_t left() const { return restarts_ - used_; }
    uint32_t used() const { return used_; }
    // A generation begins.
    void begin(Time now) { began_ = now; }
    // Whether that was so short a time ago that a failure then may be the last one still.
    bool is_young(Time now) const { return now - began_ < kFruitfulLife; }

    // A rank of it has died, or a node was lost, which is not the program's fault. nullopt: begin the next one. Else
    // why the step ends: added to the death's reason, or "" where the reason says it all.
    std::optional<std::string> why_not(const Death& death, bool all_told_to_end, Time now) {
        if (death.final) return "";
        if (all_told_to_end) return "the step was told to end";
        if (death.status && WIFEXITED(*death.status) &&
            std::ranges::count(final_exit_, WEXITSTATUS(*death.status)) > 0)
            return "--dp-final-exit lists this code";
        if (!death.of_node) {
            const bool fruitful = death.step ? *death.step > furthest_ : !is_young(now);
            furthest_ = std::max(furthest_, death.step.value_or(0));
            if (fruitful)
                fruitless_ = 0;
            else if (!death.of_survivor || !is_young(now))
                ++fruitless_;
        }
        if (fruitless_ >= kMostFruitless)
            return std::string("the third generation in a row to end without progress: ") +
                   (death.step ? "no new training step" : "within " + words(kFruitfulLife) + " of its start");
        if (used_ >= restarts_)
            return restarts_ == 0 ? "no restart is allowed (--dp-restarts=0)"
                                  : "all restarts are used (--dp-restarts=" + std::to_string(restarts_) + ")";
        ++used_;
        return std::nullopt;
    }

 private:
    uint32_t restarts_;
    ExitCodes final_exit_;
    uint32_t used_;
    uint32_t fruitless_ = 0;
    uint64_t furthest_ = 0;  // training step of a dead rank
    Time began_{};
};

// How many training steps (dp_at_step) a restart costs: those that the ranks had taken and take again.
class StepsRepeated {
 public:
    // A node's ranks had come to this step in the generation that ends.
    void ended_at(uint64_t step) { furthest_ = std::max(furthest_.value_or(0), step); }
    // The next one's first step. nullopt: none was reported since the last call, so there is nothing to compare with.
    std::optional<uint64_t> begins_with(uint64_t step) {
        const auto before = std::exchange(furthest_, std::nullopt);
        if (!before) return std::nullopt;
        return *before < step ? 0 : *before - step + 1;
    }

 private:
    std::optional<uint64_t> furthest_;
};

// "0.31 s"
inline std::string in_seconds(Time took) {
    const auto ms = took.count();
    return std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 10 + 100).substr(1) + " s";
}

// A restart from the death until the last rank of the next generation has started.
class Restart {
 public:
    // `nodes`: those that are here. `grace`: what survivors get.
    Restart(std::string reason, std::set<uint32_t> nodes, Time grace, Time died)
        : reason_(std::move(reason)),
          died_(died),
          deadline_(died + grace + kEndsAfterTerm + kEndsAfterKill),
          awaited_(std::move(nodes)) {}

    // Nothing of the old generation is left on the node, or the node is lost, and with it its ranks. Returns whether that
    // holds for all now.
    bool ended(uint32_t node) { return awaited_.erase(node) > 0 && awaited_.empty(); }
    // Ranks of the old one whose processes go on in the next one, if their nodes do.
    void add_survivors(std::span<const uint32_t> ranks) { survivors_.insert(ranks.begin(), ranks.end()); }
    const std::set<uint32_t>& survivors() const { return survivors_; }
    // Whether the next generation has not begun.
    bool is_ending() const { return is_ending_; }
    void begin_next() { is_ending_ = false; }
    // Nodes that have not ended the old one.
    const std::set<uint32_t>& awaited() const { return awaited_; }
    // When they should have, or how that stands is looked at again.
    Time deadline() const { return deadline_; }
    void look_again(Time at) { deadline_ = at; }

    const std::string& reason() const { return reason_; }
    Time died() const { return died_; }
    // How the next generation's nodes differ: " with spare node gpu05 and 6 ranks on 3 nodes".
    void note_change(std::string change) { change_ = std::move(change); }
    // The line for the user, once the next generation runs.
    std::string line(uint32_t generation, Time now) const {
        return reason_ + "; generation " + std::to_string(generation) + " began " + in_seconds(now - died_) +
               " later" + change_;
    }

 private:
    std::string reason_;
    Time died_;
    Time deadline_;
    bool is_ending_ = true;
    std::set<uint32_t> awaited_;
    std::set<uint32_t> survivors_;
    std::string change_;
};

}  // namespace dp
