// SPDX-License-Identifier: Apache-2.0
//
// Running another program: see program.hpp.
#include "trainer/prepare/program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

std::string last_line(const std::filesystem::path& log) {
    std::string text = read_file(log).value_or("");
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    return text.substr(text.rfind('\n') + 1);  // from 0 where there is but one
}

}  // namespace

Result<void> run_program(const std::vector<std::string>& words, const std::filesystem::path& log) {
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    pid_t child = 0;
    const int error = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error == ENOENT) return fail(Fault::prepare, fmt::format("{} is not installed here", words[0]));
    if (error != 0)
        return fail(Fault::prepare, fmt::format("{} cannot be started: {}", words[0], std::strerror(error)));
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    return fail(Fault::prepare, fmt::format("`{}` failed: {}", fmt::join(words, " "), last_line(log)));
}

}  // namespace dp::trainer
