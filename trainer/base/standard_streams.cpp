// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/standard_streams.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace dp::trainer {
namespace {

// Whether it is a pipe whose reader has left.
bool has_no_reader(int stream) {
    pollfd asked{stream, POLLOUT, 0};
    return ::poll(&asked, 1, 0) == 1 && (asked.revents & POLLERR) != 0;
}

}  // namespace

void hold_standard_streams() {
    // open() takes the lowest free number, and the lower ones are open by now.
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) (void)::open("/dev/null", O_RDWR);
}

void outlive_readers() {
    std::signal(SIGPIPE, SIG_IGN);
}

Result<void> all_is_printed() {
    const bool flushed = std::fflush(stdout) == 0;
    if ((flushed && std::ferror(stdout) == 0) || has_no_reader(STDOUT_FILENO)) return {};
    return fail(Fault::usage,
                "standard output is incomplete (is its disk full?); the work is done, but its last lines may "
                "be missing");
}

void print_if_possible(std::FILE* stream, std::string_view text) {
    (void)std::fwrite(text.data(), 1, text.size(), stream);
}

Error error_of(const std::exception& thrown) {
    if (dynamic_cast<const std::system_error*>(&thrown) != nullptr && std::ferror(stdout) != 0)
        return {Fault::usage,
                "cannot write to standard output (is its disk full?); redirect it to where there is room"};
    return {Fault::device, thrown.what()};
}

}  // namespace dp::trainer
