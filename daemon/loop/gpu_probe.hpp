// SPDX-License-Identifier: Apache-2.0
//
// How busy this node's NVIDIA GPUs are. Their library must be loaded, but this daemon is linked statically:
// `dpctl gpu-use` loads it, in a process of its own: while somebody looks (dpctl top), and with --dp-slow.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "dp.pb.h"
#include "engine/time.hpp"

namespace dp {

// Older results are not reported.
inline constexpr Time kGpuUseKept{5000};
// With --dp-slow: how often they are looked at, and while a rank is slower than it was.
inline constexpr Time kGpusSeenEvery{60000}, kGpusSeenOften{10000};
// The most bytes that the program may write: some hundred tiles with the processes on them.
inline constexpr size_t kMaxGpuUse = size_t{64} << 10;

class GpuProbe {
 public:
    // `command`: a program and its arguments that writes a NodeUsage with only `gpus` and exits.
    // What it has found is kept for `kept` from its start on.
    explicit GpuProbe(std::vector<std::string> command, Time kept = kGpuUseKept)
        : command_(std::move(command)), kept_(kept) {}
    ~GpuProbe();  // ends it
    GpuProbe(const GpuProbe&) = delete;
    GpuProbe& operator=(const GpuProbe&) = delete;

    // Returns the last result, if there is one, and starts a new probe without waiting for it, if the last one's start is
    // so long ago; nullopt: none.
    wire::NodeUsage look(Time now, std::optional<Time> every = Time(0));

 private:
    std::vector<std::string> command_;
    Time kept_;
    pid_t process_ = 0;  // 0: none is running
    std::optional<Time> started_;
    Fd output_;
    wire::NodeUsage found_;
    Time found_at_{};  // when that probe was started

    void start(Time now);
    void collect();
};

// With the dpctl beside this program, else the installed one; empty if the node has no NVIDIA GPU.
std::vector<std::string> gpu_use_command(const std::string& node, const std::string& tiles_conf);

}  // namespace dp
