// SPDX-License-Identifier: Apache-2.0
//
// The TCP connections of this process, found by looking: Gloo does not tell which are its own.
#pragma once

#include <chrono>
#include <map>

namespace dp {

// Descriptor -> inode, so that a number that was closed and used again is not taken for the same connection.
using ConnectedSockets = std::map<int, unsigned long>;

ConnectedSockets connected_sockets();

// What `after` has and `before` had not.
ConnectedSockets added(const ConnectedSockets& before, const ConnectedSockets& after);

// How long a read or a write that blocks may wait.
void limit_waits(const ConnectedSockets& sockets, std::chrono::milliseconds most);

// See common/congestion.hpp.
void replace_bbr(const ConnectedSockets& sockets);

// Ends both directions of those that are still the same: reads and writes on them fail at once, in all
// threads. They stay open.
void shut_down(const ConnectedSockets& sockets);

}  // namespace dp
