// SPDX-License-Identifier: Apache-2.0
//
// What the nodes of a step should have alike, and what each should do as fast: who differs is the finding. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "findings/finding.hpp"

namespace dp::doctor {

// What of a node is compared, by name ("driver" → "580.65.06").
using NodeFacts = std::map<std::string, std::string>;

// What was measured on a node, by name: the more the better ("memory" → bytes per second).
using NodeMeasures = std::map<std::string, double>;

// Of 1e9 of them ("GB/s"); "" if there is no such measure.
std::string_view giga_unit_of(std::string_view measure);

struct ComparedFact : Finding {
    std::vector<size_t> odd = {};  // nodes that have it otherwise than most; of a tie none
};

// By node, as `hosts` are. A fact that a node does not have is compared as "none".
std::vector<ComparedFact> compare_nodes(const std::vector<NodeFacts>& nodes,
                                        const std::vector<std::string>& hosts);

// Likewise. A node is odd if it does something at less than half of the usual speed; the usual is the median, of two nodes the
// higher one, and the distance from it must also be large beside the others' (3.5 times their scaled median absolute deviation).
std::vector<ComparedFact> compare_measures(const std::vector<NodeMeasures>& nodes,
                                           const std::vector<std::string>& hosts);

}  // namespace dp::doctor
