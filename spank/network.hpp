// SPDX-License-Identifier: Apache-2.0
//
// The address of a node for the other nodes of the step, and where a relay looks for the broker. Called in
// task_init, because the name service may take its time.
#pragma once

#include <string>
#include <vector>

#include "base/failure.hpp"
#include "state.hpp"

namespace dp::plugin {

// This node's numeric address: from the chosen interface, else from its name in the site's fast network
// (host-suffix=), else from its own name.
Try<std::string> address_of_node(const State& s);

// All addresses at which rank 0's node may be reached, those in the chosen network first.
Try<std::vector<std::string>> broker_addresses(const State& s);

}  // namespace dp::plugin
