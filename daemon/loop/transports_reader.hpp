// SPDX-License-Identifier: Apache-2.0
//
// --dp-nccl-debug: what this node's ranks talk over, from the files of their NCCL. `dpctl nccl-transports` reads these, in a process of
// its own, because they may be on a file system that does not answer.
#pragma once

#include <event2/event.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dp.pb.h"
#include "engine/time.hpp"
#include "loop/helper_program.hpp"

namespace dp {

// How long after the ranks have started the files are read first, how long the pauses are at most, which grow to twice as much each
// time, and how long one reading may take.
inline constexpr Time kFirstTransports{5000}, kMostPatientTransports{60000}, kTransportsPatience{10000};

class TransportsReader {
 public:
    using OnFound = std::function<void(const wire::NcclTransports& found)>;

    // `command`: a program and its arguments that, given files, writes a wire::NcclTransports, or nothing as long as there is none.
    TransportsReader(event_base* base, std::vector<std::string> command, OnFound on_found)
        : base_(base), command_(std::move(command)), on_found_(std::move(on_found)) {}

    // Reads these files if it is time to; tells what is in them once it was read twice and did not change, and again if it has
    // changed since: communicators may come late. In another generation all begins anew. Never waits. After a program that the kernel
    // does not let go none is started.
    void look(const std::vector<std::string>& files, uint32_t generation, Time now);

 private:
    event_base* base_;
    std::vector<std::string> command_;
    OnFound on_found_;
    std::vector<std::string> files_;
    uint32_t generation_ = 0;
    Time pause_{}, next_{};
    std::string said_, before_, told_;
    std::optional<HelperRun> run_;
    pid_t ended_ = 0;

    void begin(const std::vector<std::string>& files, uint32_t generation, Time now);
    void start();
    void finish();
};

}  // namespace dp
