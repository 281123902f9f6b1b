// SPDX-License-Identifier: Apache-2.0
#include "engine/node_preflight.hpp"

namespace dp {

NodePreflight::Step NodePreflight::advance(const Membership& members, Time now) {
    Step step;
    if (!is_examined_) {
        if (!examined_at_) examined_at_ = now + kExaminationsCome;
        is_examined_ = examinations_.complete(members) || now >= *examined_at_;
        if (!is_examined_) return step;
        step.fitness = examinations_.judge(members);
        step.is_last = !is_full_;
        return step;
    }
    if (!rounds_)
        rounds_.emplace(examinations_.places(members));
    else if (!rounds_->is_over(now))
        return step;
    step.sends = rounds_->begin(now);
    if (!step.sends.empty()) return step;
    step.fitness = judge_links(*rounds_, members);
    step.is_last = true;
    return step;
}

std::optional<Time> NodePreflight::next_deadline() const {
    if (rounds_) return rounds_->next_deadline();
    return is_examined_ ? std::nullopt : examined_at_;
}

}  // namespace dp
