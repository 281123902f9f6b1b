// SPDX-License-Identifier: Apache-2.0
#include "loop/helper_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace dp {

// How long a program that was killed may take to end, in ms, before its owner has to look again.
constexpr int kReapPatience = 20;

std::string dpctl_program() {
    std::array<char, 4096> own{};
    const ssize_t size = readlink("/proc/self/exe", own.data(), own.size());
    std::string program(own.data(), size > 0 ? static_cast<size_t>(size) : 0);
    program = program.substr(0, program.rfind('/') + 1) + "dpctl";
    return access(program.c_str(), X_OK) == 0 ? program : DP_DEFAULT_DPCTL;
}

pid_t spawn_helper(std::vector<std::string> command, int output, int input) {
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (auto& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    char* environment[] = {nullptr};
    posix_spawn_file_actions_t files;
    if (posix_spawn_file_actions_init(&files) != 0) return 0;
    if (input < 0)
        posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    else
        posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
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

// Not waited for: a program that hangs in the kernel would delay the daemon, and with it the end of the step.
HelperRun::~HelperRun() {
    end();
}

Try<void> HelperRun::start(event_base* base, const std::vector<std::string>& command,
                           std::optional<Time> patience) {
    std::array<int, 2> from{}, to{};
    if (pipe2(from.data(), O_CLOEXEC) != 0) return fail("no pipe for " + command.front());
    output_.reset(from[0]);
    const Fd its_output(from[1]);
    if (pipe2(to.data(), O_CLOEXEC) != 0) return fail("no pipe for " + command.front());
    input_.reset(to[1]);
    const Fd its_input(to[0]);
    fcntl(output_.get(), F_SETFL, O_NONBLOCK);
    fcntl(input_.get(), F_SETFL, O_NONBLOCK);
    program_ = spawn_helper(command, its_output.get(), its_input.get());
    if (program_ == 0)
        return fail(command.front() +
                    " cannot be started; in a container, slurm-dp must be installed there, too");
    event_.reset(event_new(base, output_.get(), EV_READ, on_output, this));
    if (patience) deadline_ = Clock::now() + *patience;
    wait_for_output();
    return {};
}

void HelperRun::tell(const std::string& bytes) const {
    // A program that does not read is ended by its deadline, or by who waits for its answer.
    [[maybe_unused]] const ssize_t written = write(input_.get(), bytes.data(), bytes.size());
}

size_t HelperRun::give(std::string_view bytes) const {
    size_t given = 0;
    while (input_ && given < bytes.size()) {
        const ssize_t size = write(input_.get(), bytes.data() + given, bytes.size() - given);
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) break;
        given += static_cast<size_t>(size);
    }
    return given;
}

bool HelperRun::complete(std::string_view rest, Time patience) {
    const auto deadline = Clock::now() + patience;
    const auto is_ready = [&](int fd, short what) {
        for (;;) {
            const auto left = std::chrono::ceil<Time>(deadline - Clock::now()).count();
            pollfd one{fd, what, 0};
            const int ready = left > 0 ? poll(&one, 1, static_cast<int>(left)) : 0;
            if (ready >= 0 || errno != EINTR) return ready == 1 && !(one.revents & POLLERR);
        }
    };
    rest.remove_prefix(give(rest));
    while (!rest.empty() && is_ready(input_.get(), POLLOUT)) rest.remove_prefix(give(rest));
    hush();
    while (event_ && is_ready(output_.get(), POLLIN)) on_output(-1, EV_READ, this);
    return !event_;
}

pid_t HelperRun::end() {
    event_.reset();
    const pid_t program = std::exchange(program_, 0);
    if (program == 0) return 0;
    kill(program, SIGKILL);
    return waitpid(program, nullptr, WNOHANG) == 0 ? program : 0;
}

void HelperRun::wait_for_output() {
    if (!deadline_) {
        event_add(event_.get(), nullptr);
        return;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(*deadline_ - Clock::now()).count();
    const timeval patience{0, 1};
    const timeval rest{left / 1'000'000, left % 1'000'000};
    event_add(event_.get(), left > 0 ? &rest : &patience);
}

void HelperRun::on_output(int, short what, void* run) {
    HelperRun& self = *static_cast<HelperRun*>(run);
    if (what & EV_TIMEOUT) return self.finish(End::too_late);
    std::array<char, 65536> some{};
    ssize_t size = 0;
    while ((size = read(self.output_.get(), some.data(), some.size())) > 0) {
        self.said_.append(some.data(), static_cast<size_t>(size));
        if (!self.on_said_(self.said_)) return self.finish(End::wrong);
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return self.wait_for_output();
    // It has closed its output: it ends now, if no file system keeps it.
    kill(self.program_, SIGKILL);
    pollfd ended{static_cast<int>(syscall(SYS_pidfd_open, self.program_, 0)), POLLIN, 0};
    const Fd owner(ended.fd);
    if (ended.fd >= 0) poll(&ended, 1, kReapPatience);
    if (waitpid(self.program_, nullptr, WNOHANG) != 0) self.program_ = 0;
    self.finish(End::done);
}

void HelperRun::finish(End end) {
    event_.reset();
    const OnEnd on_end = std::move(on_end_);
    on_end(end);
}

}  // namespace dp
