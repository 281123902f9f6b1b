// SPDX-License-Identifier: Apache-2.0
//
// Which address a node of the step has for the others, and where a relay looks for the broker. Called in
// task_init, for the name service may take its time.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "state.hpp"

namespace dp::plugin {

// This node's, numeric: of the chosen interface, else of its name in the site's fast network (host-suffix=),
// else of its own name.
Try<std::string> address_of_node(const State& s);

// All addresses under which rank 0's node may be reached, those of the chosen network first.
Try<std::vector<std::string>> broker_addresses(const State& s);

}  // namespace dp::plugin
