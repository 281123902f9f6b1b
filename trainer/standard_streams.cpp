// SPDX-License-Identifier: Apache-2.0
#include "trainer/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace dp::trainer {

void hold_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        // The lowest free number is taken, and the lower ones are open by now.
        if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) (void)::open("/dev/null", O_RDWR);
    }
}

Result<void> all_is_printed() {
    const bool flushed = std::fflush(stdout) == 0;
    if (flushed && std::ferror(stdout) == 0) return {};
    return fail(Fault::usage,
                "not all of the standard output could be written (is its disk full?); what this was started "
                "for is done, but its last line may be missing");
}

}  // namespace dp::trainer
