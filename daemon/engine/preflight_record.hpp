// SPDX-License-Identifier: Apache-2.0
//
// --dp-preflight in the record: what a node's examination has found, and then each link that it has measured. What only the comparison
// with other nodes shows is among the lines for the user. Pure.
#pragma once

#include <chrono>
#include <string>

#include "dp.pb.h"
#include "record.pb.h"

namespace dp {

// `took`: since the examination began.
record::Entry preflight_entry(const wire::NodeExamination& found, std::chrono::milliseconds took);
// `partner`: the address of the node at the link's other end.
record::Entry preflight_entry(const wire::MeasuredLink& link, const std::string& partner,
                              std::chrono::milliseconds took);

}  // namespace dp
