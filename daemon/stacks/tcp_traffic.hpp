// SPDX-License-Identifier: Apache-2.0
//
// What processes send and receive over TCP, which /proc/PID/io does not count.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace dp::stacks {

struct TcpTraffic {
    std::chrono::steady_clock::time_point at{};
    // Bytes that were sent and acknowledged, and bytes received, since each connection began; by the socket's inode.
    std::map<uint32_t, uint64_t> bytes;
};

// Of the connections that these processes have open; without those of other network namespaces. Takes as long as it takes to look at their
// descriptors and at all connections of this machine: some milliseconds. nullopt if the kernel does not tell of all.
std::optional<TcpTraffic> tcp_traffic_of(const std::vector<pid_t>& processes);

// Whether that was a transfer: not a watchdog's or a logger's messages, nor those of who keeps a store for many ranks. Of a connection that is
// new, all counts; of one that was closed meanwhile, nothing. Pure.
bool is_transfer(const TcpTraffic& before, const TcpTraffic& after);

}  // namespace dp::stacks
