// SPDX-License-Identifier: Apache-2.0
#include "doctor/apart.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/errno_text.hpp"
#include "base/fd.hpp"
#include "base/text.hpp"

namespace dp::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOutput = 1 << 20;
constexpr int kNotStarted = 127;

// Until it has ended, or the deadline has passed.
bool has_ended(pid_t process, int& status, Clock::time_point deadline) {
    for (;;) {
        if (waitpid(process, &status, WNOHANG) == process) return true;
        if (Clock::now() > deadline) return false;
        usleep(500);
    }
}

// Runs `child`, which writes to the descriptor that it gets, in a new process, until that has ended.
Try<CommandOutput> run_apart(const std::function<void(int output)>& child,
                             std::chrono::milliseconds patience) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail("no pipe: " + errno_text(errno));
    const Fd output(ends[0]);
    Fd input(ends[1]);
    const pid_t process = fork();
    if (process < 0) return fail("no process: " + errno_text(errno));
    if (process == 0) {
        setpgid(0, 0);
        try {
            child(input.get());
        } catch (...) {  // out of memory, say: nothing is known then
        }
        _exit(0);
    }
    setpgid(process, process);  // in both: whoever comes first
    input.reset();
    CommandOutput said;
    int status = 0;
    bool is_open = true;
    const auto deadline = Clock::now() + patience;
    while (is_open) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd readable{output.get(), POLLIN, 0};
        if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count()) + 1) == 0) break;
        std::array<char, 4096> some{};
        const ssize_t size = read(output.get(), some.data(), some.size());
        if (size < 0 && errno == EINTR) continue;
        is_open = size > 0;
        if (size > 0)
            said.text.append(some.data(),
                             std::min(static_cast<size_t>(size), kMostOutput - said.text.size()));
    }
    if (is_open || !has_ended(process, status, deadline)) {
        kill(-process, SIGKILL);
        // One that hangs in the kernel is not waited for.
        has_ended(process, status, Clock::now() + std::chrono::milliseconds(200));
        return fail("no answer within " + words(patience));
    }
    said.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return said;
}

void write_all(int output, std::string_view text) {
    while (!text.empty()) {
        const ssize_t size = write(output, text.data(), text.size());
        if (size <= 0) return;
        text.remove_prefix(static_cast<size_t>(size));
    }
}

}  // namespace

Try<std::string> apart(const std::function<std::string()>& work, std::chrono::milliseconds patience) {
    return DP_TRY(run_apart(
                      [&](int output) {
                          // What libraries write when they are loaded is not for the terminal.
                          const Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
                          dup2(nothing.get(), STDOUT_FILENO);
                          dup2(nothing.get(), STDERR_FILENO);
                          write_all(output, work());
                      },
                      patience))
        .text;
}

Try<CommandOutput> output_of(const std::vector<std::string>& command, std::chrono::milliseconds patience) {
    std::vector<std::string> own = command;
    std::vector<char*> arguments;
    arguments.reserve(own.size() + 1);
    for (auto& word : own) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    auto said = DP_TRY(run_apart(
        [&](int output) {
            const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
            dup2(nothing.get(), STDIN_FILENO);
            dup2(output, STDOUT_FILENO);
            dup2(output, STDERR_FILENO);
            execvp(arguments.front(), arguments.data());
            _exit(kNotStarted);
        },
        patience));
    if (said.exit_code == kNotStarted && said.text.empty()) return fail(command.front() + " is not here");
    return said;
}

}  // namespace dp::doctor
