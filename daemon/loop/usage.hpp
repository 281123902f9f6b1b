// SPDX-License-Identifier: Apache-2.0
//
// What this node's ranks are doing, read when somebody asks: the pages in which they say their phases, and
// the names of their programs in /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "dp.pb.h"
#include "engine/node.hpp"
#include "engine/usage.hpp"

namespace dp {

// The file behind descriptor `fd` of the process, if it is such a page (common/phase_page.hpp). What else it
// may be is not opened: a descriptor number may be any, and a file may hang or do something when it is.
Fd open_phase_page(pid_t pid, int32_t fd);

// "trainer", "python3.11": the program's file without its folder, else the kernel's name for it; "" where the
// process is gone. (Its arguments lie in its memory: who reads them may wait for whatever it waits for.)
std::string command_of(pid_t pid);

// What all its threads have worked since it began; nothing where it is gone.
std::optional<int64_t> cpu_ns_of(pid_t pid);

class UsageReader {
 public:
    void open(ConnectionId connection, pid_t pid, int32_t fd);
    void close(ConnectionId connection) { pages_.erase(connection); }

    // Adds the process, its CPU time, and its phases where it has such a page.
    void read(wire::NodeUsage::Rank& rank, pid_t pid, std::optional<ConnectionId> connection,
              int64_t now_ns) const;

 private:
    std::map<ConnectionId, Fd> pages_;
};

}  // namespace dp
