// SPDX-License-Identifier: Apache-2.0
//
// A disk that is full, for tests.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace dp::trainer {

// Files of this process can be no larger; what would be is EFBIG instead of a signal.
class SmallFiles {
 public:
    explicit SmallFiles(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~SmallFiles() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }
    SmallFiles(const SmallFiles&) = delete;
    SmallFiles& operator=(const SmallFiles&) = delete;

 private:
    void (*handler_)(int);
    rlimit before_{};
};

}  // namespace dp::trainer
