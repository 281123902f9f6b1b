// SPDX-License-Identifier: Apache-2.0
//
// --dp-preflight: what this node is like, and how fast its links are. `dpctl examine` finds out, in a process of its own, because drivers
// and file systems may not answer, and it loads libraries.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dp.pb.h"
#include "loop/helper_program.hpp"

namespace dp {

class Examiner {
 public:
    using OnFound = std::function<void(wire::FromNode)>;

    // `command`: a program that writes a wire::FromNode in a frame with an examination, and another one with a measured link for
    // each MeasureLink that it reads from a frame. `on_found` hears of each, and of an
    // examination that failed.
    explicit Examiner(OnFound on_found);
    void start(event_base* base, const std::vector<std::string>& command);
    void measure(const wire::MeasureLink& link);
    // Nothing is measured any more.
    void finish() { program_.hush(); }
    // Takes note of a program that was ended and that the kernel has let go since.
    void reap();

 private:
    OnFound on_found_;
    bool is_examined_ = false;
    pid_t ended_ = 0;
    HelperRun program_;

    void found(const wire::FromNode& message);
    void examined(wire::NodeExamination examination);
    void ended(HelperRun::End end);
};

}  // namespace dp
