// SPDX-License-Identifier: Apache-2.0
#include "loop/gpu_probe.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "loop/helper_program.hpp"

namespace dp {

// Not waited for: a process that hangs in a driver would delay the daemon, and with it the end of the step.
GpuProbe::~GpuProbe() {
    if (process_ != 0) kill(process_, SIGKILL);
}

wire::NodeUsage GpuProbe::look(Time now, std::optional<Time> every) {
    if (command_.empty()) return {};
    collect();
    if (process_ == 0 && every && (!started_ || now - *started_ >= *every)) start(now);
    if (now - found_at_ > kept_) found_.Clear();
    return found_;
}

void GpuProbe::start(Time now) {
    started_ = now;
    output_.reset(memfd_create("slurm-dp-gpu-use", MFD_CLOEXEC));
    if (output_) process_ = spawn_helper(command_, output_.get());
}

void GpuProbe::collect() {
    int status = 0;
    if (process_ == 0 || waitpid(process_, &status, WNOHANG) != process_) return;
    process_ = 0;
    std::string said(kMaxGpuUse, '\0');
    const ssize_t size = pread(output_.get(), said.data(), said.size(), 0);
    said.resize(size > 0 ? static_cast<size_t>(size) : 0);
    if (status != 0 || !found_.ParseFromString(said)) found_.Clear();
    found_at_ = started_.value_or(Time(0));
}

std::vector<std::string> gpu_use_command(const std::string& node, const std::string& tiles_conf) {
    if (access("/proc/driver/nvidia/gpus", F_OK) != 0) return {};
    return {dpctl_program(), "gpu-use", "--node", node, "--conf", tiles_conf};
}

}  // namespace dp
