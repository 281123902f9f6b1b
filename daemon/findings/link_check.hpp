// SPDX-License-Identifier: Apache-2.0
//
// What was measured between the nodes of a step, and which links, nodes and clocks stand out. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "findings/comparison.hpp"

namespace dp::doctor {

// What the node `from` has measured with the node `to`.
struct Link {
    uint32_t from = 0, to = 0;
    double there = 0, back = 0;  // bytes per second
    double round_trip = 0;       // seconds, the shortest of some
    double ahead = 0;            // seconds by which `to`'s clock is ahead
    std::string problem;         // why the figures are missing
};

// Slow links and nodes, and clocks that differ. `hosts`: by the nodes' numbers.
std::vector<ComparedFact> check_links(const std::vector<Link>& links, const std::vector<std::string>& hosts);

wire::MeasuredLink message_of(const Link& link);
Link link_of(const wire::MeasuredLink& message);

}  // namespace dp::doctor
