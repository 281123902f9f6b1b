// SPDX-License-Identifier: Apache-2.0
//
// How busy this node's NVIDIA GPUs are. Their library must be loaded, but this daemon is linked statically:
// `dpctl gpu-use` loads it, in a process of its own, while somebody looks (dpctl top).
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "dp.pb.h"
#include "engine/time.hpp"

namespace dp {

// Older results are not reported.
inline constexpr Time kGpuUseKept{5000};
// The most bytes that the program may write: some thousand tiles.
inline constexpr size_t kMaxGpuUse = size_t{64} << 10;

class GpuProbe {
 public:
    // `command`: a program and its arguments that writes a NodeUsage with only `gpus` and exits.
    explicit GpuProbe(std::vector<std::string> command) : command_(std::move(command)) {}
    ~GpuProbe();  // ends it
    GpuProbe(const GpuProbe&) = delete;
    GpuProbe& operator=(const GpuProbe&) = delete;

    // Returns the last result, if there is one, and starts a new probe without waiting for it.
    wire::NodeUsage look(Time now);

 private:
    std::vector<std::string> command_;
    pid_t process_ = 0;  // 0: none is running
    Fd output_;
    wire::NodeUsage found_;
    Time found_at_{};

    void start();
    void collect(Time now);
};

// With the dpctl beside this program, else the installed one; empty if the node has no NVIDIA GPU.
std::vector<std::string> gpu_use_command(const std::string& node, const std::string& tiles_conf);

}  // namespace dp
