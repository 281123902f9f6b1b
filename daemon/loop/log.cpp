// SPDX-License-Identifier: Apache-2.0
#include "loop/log.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/errno_text.hpp"

namespace dp {

// If nobody reads the step's output (a stopped srun), drop the line rather than stop serving ranks.
constexpr int kPatienceMs = 100;
constexpr std::chrono::seconds kStuck{1};

void log_line(const std::string& text) {
    std::string line = "slurm-dp: " + text + "\n";
    // After a dropped line, the next ones are not waited for at all for a while.
    static std::chrono::steady_clock::time_point stuck{};
    const auto now = std::chrono::steady_clock::now();
    pollfd entry{STDERR_FILENO, POLLOUT, 0};
    const int patience = now < stuck + kStuck ? 0 : kPatienceMs;
    if (poll(&entry, 1, patience) != 1 || !(entry.revents & POLLOUT)) {
        stuck = now;
        return;
    }
    [[maybe_unused]] ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
}

void RejectedPeers::mention(const std::string& what, const std::string& why) {
    const bool new_reason = reasons_.size() < kReasons && reasons_.insert(why).second;
    if (++seen_ <= kPrinted || new_reason)
        log_line("closed " + what + ": " + why);
    else
        ++unsaid_;
}

void RejectedPeers::no_room(int error) {
    if (std::exchange(said_no_room_, true)) return;
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    log_line("node " + host_ + ": the rendezvous daemon " +
             (error == EMFILE ? "has used up its " + std::to_string(files.rlim_cur) + " file descriptors"
                              : "cannot take a connection") +
             ", and ranks or nodes wait: " + errno_text(error));
}

void RejectedPeers::summary() {
    if (unsaid_ > 0) log_line(std::to_string(unsaid_) + " more unwanted connections were closed");
}

}  // namespace dp
