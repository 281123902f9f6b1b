// SPDX-License-Identifier: Apache-2.0
//
// What this node's ranks are doing, call by call: `dpctl read-stacks` reads it, in a process of its own, because their memory is
// untrusted, may be slow to read, and takes a library to understand.
#pragma once

#include <event2/event.h>

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "engine/time.hpp"
#include "loop/helper_program.hpp"

namespace dp {

// A program that is not done by then is ended, before the broker gives up the node; what it has read so far is told.
inline constexpr Time kReadingDeadline{1500};

class StackReader {
 public:
    struct Process {
        uint32_t rank = 0;
        pid_t pid = 0;  // 0: it has ended, or has not begun
    };
    using OnRead = std::function<void(wire::NodeStacks)>;

    // `command`: a program and its arguments that, given --threads or not and some pids, writes a NodeStacks of one rank for each, in
    // order, and exits. `on_read` is called once for each read(), perhaps before that returns.
    StackReader(event_base* base, std::vector<std::string> command, OnRead on_read);
    StackReader(const StackReader&) = delete;
    StackReader& operator=(const StackReader&) = delete;

    void read(const wire::ReadStacks& asked, const std::vector<Process>& processes);
    // Takes note of programs that were ended and that the kernel has let go since.
    void reap();

 private:
    struct Reading {
        uint64_t question = 0;
        std::vector<Process> processes;
        std::string said;
        std::optional<HelperRun> program;
    };
    event_base* base_;
    std::vector<std::string> command_;
    OnRead on_read_;
    std::list<Reading> readings_;
    std::vector<pid_t> ended_;  // by us, and not let go by the kernel yet

    void finish(Reading& reading, const std::string& problem);
    void tell(const Reading& reading, const std::string& problem);
};

}  // namespace dp
