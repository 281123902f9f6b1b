// SPDX-License-Identifier: Apache-2.0
//
// What the nodes of a step should have alike: who differs is the finding. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "doctor/finding.hpp"

namespace dp::doctor {

// What of a node is compared, by name ("driver" → "580.65.06").
using NodeFacts = std::map<std::string, std::string>;

// By node, as `hosts` are. A fact that a node does not have is compared as "none".
Findings compare_nodes(const std::vector<NodeFacts>& nodes, const std::vector<std::string>& hosts);

}  // namespace dp::doctor
