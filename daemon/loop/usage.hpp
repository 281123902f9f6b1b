// SPDX-License-Identifier: Apache-2.0
//
// What this node's ranks are doing: their pages of phases, and their programs in /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "common/phase_page.hpp"
#include "dp.pb.h"
#include "engine/node.hpp"
#include "engine/usage.hpp"

namespace dp {

// The file behind descriptor `fd` of the process, if it is such a page (common/phase_page.hpp). Anything else
// is not opened: the number may be any, and opening a file may hang or have effects.
Fd open_phase_page(pid_t pid, int32_t fd);

// "trainer", "python3.11": the program's file name, else the kernel's name for it; "" if the process is gone.
// (Not its arguments: they are in its memory, and reading that may wait for whatever the process waits for.)
std::string command_of(pid_t pid);

// The CPU time of all its threads since it began; nothing if it is gone.
std::optional<int64_t> cpu_ns_of(pid_t pid);

class UsageReader {
 public:
    std::optional<PhasePage> page(ConnectionId connection) const;
    void open(ConnectionId connection, pid_t pid, int32_t fd);
    void close(ConnectionId connection) { pages_.erase(connection); }

    // Adds the process, its CPU time, and its phases if it has such a page.
    void read(wire::NodeUsage::Rank& rank, pid_t pid, std::optional<ConnectionId> connection,
              int64_t now_ns) const;

 private:
    std::map<ConnectionId, Fd> pages_;
};

}  // namespace dp
