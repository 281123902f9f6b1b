// SPDX-License-Identifier: Apache-2.0
#include "loop/gpu_probe.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace dp {
namespace {

// Inherits nothing from the daemon except the output, not even its environment.
pid_t spawn(std::vector<std::string>& command, int output) {
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (auto& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    char* environment[] = {nullptr};
    posix_spawn_file_actions_t files;
    if (posix_spawn_file_actions_init(&files) != 0) return 0;
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    // The daemon got its descriptors from its launcher, at numbers that an exec does not close.
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    pid_t process = 0;
    const int error =
        posix_spawn(&process, command.front().c_str(), &files, nullptr, arguments.data(), environment);
    posix_spawn_file_actions_destroy(&files);
    return error == 0 ? process : 0;
}

}  // namespace

// Not waited for: a process that hangs in a driver would delay the daemon, and with it the end of the step.
GpuProbe::~GpuProbe() {
    if (process_ != 0) kill(process_, SIGKILL);
}

wire::NodeUsage GpuProbe::look(Time now) {
    if (command_.empty()) return {};
    collect(now);
    if (process_ == 0) start();
    if (now - found_at_ > kGpuUseKept) found_.Clear();
    return found_;
}

void GpuProbe::start() {
    output_.reset(memfd_create("slurm-dp-gpu-use", MFD_CLOEXEC));
    if (output_) process_ = spawn(command_, output_.get());
}

void GpuProbe::collect(Time now) {
    int status = 0;
    if (process_ == 0 || waitpid(process_, &status, WNOHANG) != process_) return;
    process_ = 0;
    std::string said(kMaxGpuUse, '\0');
    const ssize_t size = pread(output_.get(), said.data(), said.size(), 0);
    said.resize(size > 0 ? static_cast<size_t>(size) : 0);
    if (status != 0 || !found_.ParseFromString(said)) found_.Clear();
    found_at_ = now;
}

std::vector<std::string> gpu_use_command(const std::string& node, const std::string& tiles_conf) {
    if (access("/proc/driver/nvidia/gpus", F_OK) != 0) return {};
    std::array<char, 4096> own{};
    const ssize_t size = readlink("/proc/self/exe", own.data(), own.size());
    std::string program(own.data(), size > 0 ? static_cast<size_t>(size) : 0);
    program = program.substr(0, program.rfind('/') + 1) + "dpctl";
    if (access(program.c_str(), X_OK) != 0) program = DP_DEFAULT_DPCTL;
    return {program, "gpu-use", "--node", node, "--conf", tiles_conf};
}

}  // namespace dp
