// SPDX-License-Identifier: Apache-2.0
//
// How busy this node's NVIDIA GPUs are. Their library wants to be loaded, and this daemon is linked
// statically: `dpctl gpu-use` loads it, in a process of its own, while somebody looks (dpctl top).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "dp.pb.h"
#include "engine/time.hpp"

namespace dp {

// What was found longer ago is told no more.
inline constexpr Time kGpuUseKept{5000};
// Of what the program says, in bytes: some thousand tiles.
inline constexpr size_t kMaxGpuUse = size_t{64} << 10;

class GpuProbe {
 public:
    // `command`: a program and its arguments that writes a NodeUsage with nothing but `gpus` and ends.
    explicit GpuProbe(std::vector<std::string> command);
    ~GpuProbe();  // ends it
    GpuProbe(const GpuProbe&) = delete;
    GpuProbe& operator=(const GpuProbe&) = delete;

    // What was found when somebody looked before; begins to look anew, and does not wait for it. Nothing
    // where the program says nothing.
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

// What the node's daemon runs: the dpctl beside it, else the installed one; empty where the node has no
// NVIDIA GPU.
std::vector<std::string> gpu_use_command(const std::string& node, const std::string& tiles_conf);

}  // namespace dp
