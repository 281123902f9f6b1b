// SPDX-License-Identifier: Apache-2.0
#include "child_work.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

namespace dp::plugin {
namespace {

// The first letter of an answer.
constexpr char kDone = '+', kFailed = '-';

[[noreturn]] void work_in_child(const std::function<Try<std::string>()>& work, int answer) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // What cannot be done here srun will try itself, and then it is said.
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int printed : {STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, printed);
    std::string text;
    try {
        const Try<std::string> done = work();
        text = done ? kDone + *done : kFailed + done.error().message;
    } catch (const std::exception& e) {
        text = std::string(1, kFailed) + e.what();
    }
    for (std::string_view rest = text; !rest.empty();) {
        const ssize_t written = write(answer, rest.data(), rest.size());
        if (written < 0 && errno != EINTR) break;
        rest.remove_prefix(written < 0 ? 0 : static_cast<size_t>(written));
    }
    _exit(0);
}

}  // namespace

Try<ChildWork> ChildWork::start(const std::function<Try<std::string>()>& work) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail(std::string("cannot make a pipe: ") + std::strerror(errno));
    Fd read_end(ends[0]), write_end(ends[1]);
    ChildWork started;
    started.child_ = fork();
    if (started.child_ < 0) return fail(std::string("cannot make a process: ") + std::strerror(errno));
    if (started.child_ == 0) work_in_child(work, write_end.get());
    started.answer_ = std::move(read_end);
    return started;
}

Try<std::string> ChildWork::finish() {
    std::string text;
    char part[4096];
    for (ssize_t size = 1; size != 0;) {
        size = read(answer_.get(), part, sizeof part);
        if (size < 0 && errno != EINTR) break;
        if (size > 0) text.append(part, static_cast<size_t>(size));
    }
    while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (text.empty()) return fail("the process that was to do it was ended");
    const bool done = text.front() == kDone;
    text.erase(0, 1);
    if (!done) return fail(std::move(text));
    return text;
}

}  // namespace dp::plugin
