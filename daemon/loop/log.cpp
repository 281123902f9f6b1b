// SPDX-License-Identifier: Apache-2.0
#include "loop/log.hpp"

#include <poll.h>
#include <unistd.h>

namespace dp {
namespace {

// Nobody reads the step's output (a stopped srun): drop the line rather than stop serving ranks.
constexpr int kPatienceMs = 100;

}  // namespace

void log_line(const std::string& text) {
    std::string line = "slurm-dp: " + text + "\n";
    pollfd entry{STDERR_FILENO, POLLOUT, 0};
    if (poll(&entry, 1, kPatienceMs) != 1 || !(entry.revents & POLLOUT)) return;
    [[maybe_unused]] ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
}

void StrangerLog::mention(const std::string& text) {
    if (++seen_ <= kPrinted) log_line(text);
}

void StrangerLog::summary() {
    if (seen_ > kPrinted)
        log_line(std::to_string(seen_ - kPrinted) + " more connections of strangers were closed");
}

}  // namespace dp
