// SPDX-License-Identifier: Apache-2.0
//
// Running another program: see program.hpp.
#include "trainer/prepare/program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fd.hpp"

namespace dp::trainer {
namespace {

std::string last_line(std::string text) {
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    return text.substr(text.rfind('\n') + 1);  // from 0 where there is but one
}

// To its end.
std::string read_pipe(int pipe) {
    std::string text;
    std::array<char, 4096> piece{};
    for (;;) {
        const ssize_t got = ::read(pipe, piece.data(), piece.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return text;
        text.append(piece.data(), static_cast<std::size_t>(got));
    }
}

}  // namespace

Result<void> run_program(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    // A pipe, not a file: the program may have failed because the disk is full.
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
        return fail(Fault::prepare, fmt::format("{} cannot be started: {}", words[0], std::strerror(errno)));
    const Fd reader(ends[0]);
    Fd writer(ends[1]);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, writer.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, writer.get(), STDERR_FILENO);
    pid_t child = 0;
    const int error = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error == ENOENT) return fail(Fault::prepare, fmt::format("{} is not installed here", words[0]));
    if (error != 0)
        return fail(Fault::prepare, fmt::format("{} cannot be started: {}", words[0], std::strerror(error)));
    writer.reset();
    const std::string printed = read_pipe(reader.get());
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    return fail(Fault::prepare, fmt::format("`{}` failed: {}", fmt::join(words, " "), last_line(printed)));
}

}  // namespace dp::trainer
