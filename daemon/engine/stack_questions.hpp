// SPDX-License-Identifier: Apache-2.0
//
// What the step's ranks are doing, call by call, asked of the nodes that have them (dpctl stacks). Each asker has a question of
// its own, because two seldom want the same. A pure state machine; the broker owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

// How long a question waits for its nodes.
inline constexpr Time kStacksDeadline{2000};
// How many may wait at once.
inline constexpr size_t kMaxStackQuestions = 16;
// Bytes of a request: ten thousand ranks by number.
inline constexpr size_t kMaxStacksRequest = size_t{32} << 10;
// Of a node; with more, it says so instead.
inline constexpr size_t kMaxNodeStacks = size_t{256} << 10;
// Of an answer; the nodes that do not fit are left out.
inline constexpr size_t kMaxStepStacks = size_t{2} << 20;

class StackQuestions {
 public:
    struct Asker {
        uint32_t node = 0;
        uint64_t connection = 0;  // the node's own number
    };
    struct End {
        Asker asker;
        wire::StepStacks stacks;
    };

    // What to ask of which nodes, of `here`, and the question's number. An error is the asker's answer.
    struct Asked {
        uint64_t question = 0;
        std::map<uint32_t, wire::StacksRequest> nodes;
    };
    Try<Asked> ask(const Asker& asker, const wire::StacksRequest& wanted, const std::vector<uint32_t>& here,
                   const Membership& members, Time now);
    // Untrusted: only its ranks and its size are limited.
    void answer(uint32_t node, const wire::NodeStacks& stacks, const Membership& members);
    // The node has left or is lost, and will not answer.
    void remove(uint32_t node);

    // The questions that every node has answered or whose time is up. `why_late`: of the nodes that have not.
    std::vector<End> take_ended(const Membership& members,
                                const std::function<std::string(uint32_t)>& why_late, Time now);
    std::optional<Time> next_deadline() const;

 private:
    struct Question {
        Asker asker;
        Time deadline{};
        std::set<uint32_t> nodes, awaited;
        std::map<uint32_t, wire::NodeStacks> answers;
    };
    std::map<uint64_t, Question> questions_;
    uint64_t last_ = 0;
};

}  // namespace dp
