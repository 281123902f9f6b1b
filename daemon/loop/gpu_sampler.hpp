// SPDX-License-Identifier: Apache-2.0
//
// --dp-record: this node's GPUs, look by look. `dpctl gpu-use --every` looks at them, in a process of its own, for as long as the daemon lives.
#pragma once

#include <event2/event.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dp.pb.h"
#include "loop/helper_program.hpp"

namespace dp {

// They say what they did in the last second or less, so that to look more often tells nothing new.
inline constexpr std::chrono::milliseconds kGpusLookedAtMostEvery{1000};

class GpuSampler {
 public:
    // `command`: a program and its arguments that writes a NodeUsage in a frame for each look. Empty: there are none.
    explicit GpuSampler(std::vector<std::string> command) : command_(std::move(command)) {}

    // Never waits.
    void start(event_base* base);
    // The last look, if there is one since the last call.
    std::optional<wire::NodeUsage> take() { return std::exchange(found_, std::nullopt); }
    pid_t pid() const { return program_ ? program_->pid() : 0; }  // 0: it does not run
    // Why they are not looked at, or could not be once; each reason once, and only some.
    std::optional<std::string> take_problem() { return std::exchange(problem_, std::nullopt); }

 private:
    std::vector<std::string> command_;
    std::optional<HelperRun> program_;
    std::optional<wire::NodeUsage> found_;
    std::optional<std::string> problem_;
    std::set<std::string> told_;
    bool has_found_ = false;

    void note(const wire::NodeUsage& said);
    void note_problem(const std::string& problem);
};

// The arguments for it (gpu_use_command()); empty for an empty one.
std::vector<std::string> every(std::vector<std::string> command, std::chrono::milliseconds interval);

}  // namespace dp
