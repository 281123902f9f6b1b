// SPDX-License-Identifier: Apache-2.0
#include "loop/helper_program.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <array>

namespace dp {

std::string dpctl_program() {
    std::array<char, 4096> own{};
    const ssize_t size = readlink("/proc/self/exe", own.data(), own.size());
    std::string program(own.data(), size > 0 ? static_cast<size_t>(size) : 0);
    program = program.substr(0, program.rfind('/') + 1) + "dpctl";
    return access(program.c_str(), X_OK) == 0 ? program : DP_DEFAULT_DPCTL;
}

pid_t spawn_helper(std::vector<std::string> command, int output) {
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

}  // namespace dp
