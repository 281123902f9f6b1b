// SPDX-License-Identifier: Apache-2.0
//
// --dp-preflight, from the first node's word to the verdict: the nodes are examined, then, if it is a full one, their links measured.
// Pure; the broker owns it.
#pragma once

#include <optional>
#include <vector>

#include "engine/link_rounds.hpp"
#include "engine/node_fitness.hpp"

namespace dp {

class NodePreflight {
 public:
    explicit NodePreflight(bool is_full) : is_full_(is_full) {}

    void note(uint32_t node, const wire::NodeExamination& said) { examinations_.note(node, said); }
    void note(uint32_t node, const wire::MeasuredLink& measured) {
        if (rounds_) rounds_->note(node, measured);
    }

    struct Step {
        std::vector<LinkRounds::Message> sends;
        std::optional<Fitness> fitness;  // a verdict; the unfit nodes are to be gone before the next step
        bool is_last = false;            // after which there is no other step
    };
    // What is to be done once all nodes have joined; nothing while it waits for them. Again after each step that had a verdict.
    Step advance(const Membership& members, Time now);
    std::optional<Time> next_deadline() const;

 private:
    bool is_full_;
    NodeExaminations examinations_;
    std::optional<Time> examined_at_;  // at the latest
    bool is_examined_ = false;
    std::optional<LinkRounds> rounds_;
};

}  // namespace dp
