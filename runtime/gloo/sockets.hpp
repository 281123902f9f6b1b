// SPDX-License-Identifier: Apache-2.0
//
// This process's TCP connections, found by comparing: Gloo does not tell which ones are its own.
#pragma once

#include <chrono>
#include <map>

namespace dp {

// Descriptor -> inode, so that a reused descriptor number is not taken for the same connection.
using ConnectedSockets = std::map<int, unsigned long>;

ConnectedSockets connected_sockets();

// The connections in `after` that are not in `before`.
ConnectedSockets added(const ConnectedSockets& before, const ConnectedSockets& after);

// Limits how long a blocking read or write may wait.
void limit_waits(const ConnectedSockets& sockets, std::chrono::milliseconds most);

// See common/congestion.hpp.
void replace_bbr(const ConnectedSockets& sockets);

// Shuts down both directions of connections that are still the same: reads and writes on them fail at once,
// in all threads. They stay open.
void shut_down(const ConnectedSockets& sockets);

}  // namespace dp
