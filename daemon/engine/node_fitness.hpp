// SPDX-License-Identifier: Apache-2.0
//
// --dp-preflight: whether the nodes are fit for the step, before its ranks start. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "dp.pb.h"
#include "engine/link_rounds.hpp"
#include "engine/membership.hpp"
#include "engine/time.hpp"
#include "findings/comparison.hpp"

namespace dp {

// What a node says of itself, serialised.
inline constexpr size_t kMaxExamination = size_t{64} << 10;
// A node that is not done by then says so, and is not fit. Setting up many GPUs takes a driver its time.
inline constexpr Time kExaminationPatience{40000};
// The broker waits this long for it, from when the last node has joined.
inline constexpr Time kExaminationsCome = kExaminationPatience + Time(3000);
static_assert(kExaminationsCome + kAllRounds + kRoundPatience <= kLongestPreflight);
// What such a node says.
wire::NodeExamination not_examined_in_time();

struct Fitness {
    std::map<uint32_t, std::string> unfit;  // nodes, and why
    std::string disagreement;  // for which no rank would work, and nobody knows which side is right; else ""
    std::vector<std::string> remarks;  // what differs or is not known, with which ranks work all the same

    bool is_good() const { return unfit.empty() && disagreement.empty(); }
};

class NodeExaminations {
 public:
    void note(uint32_t node, wire::NodeExamination said);
    // Whether all nodes that are here have said something.
    bool complete(const Membership& members) const;
    Fitness judge(const Membership& members) const;
    // Where the links of fit nodes can be measured.
    std::vector<LinkRounds::Place> places(const Membership& members) const;

 private:
    std::map<uint32_t, wire::NodeExamination> said_;

    void compare_measures(const std::vector<uint32_t>& nodes, const std::vector<doctor::NodeFacts>& facts,
                          const Membership& members, Fitness& fitness) const;
};

Fitness judge_links(const LinkRounds& rounds, const Membership& members);

// "node[02-03]: temporary files: /tmp: full; node07: ...": those with the same reason together.
std::string who_is_unfit(const std::map<uint32_t, std::string>& unfit, const Membership& members);

// The line for a step that cannot begin without them.
std::string refusal(const Fitness& fitness, const Membership& members);

}  // namespace dp
