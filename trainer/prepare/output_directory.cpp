// SPDX-License-Identifier: Apache-2.0
#include "trainer/prepare/output_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// npm and the longest text together take minutes.
constexpr auto kLongestWait = std::chrono::minutes(30);

tl::unexpected<Error> problem(const fs::path& path, const std::string& why) {
    return fail(Fault::prepare, fmt::format("{}: {}", path.string(), why));
}

// Another process that created the parent directories may remove them at any time.
constexpr int kMostTries = 10;
constexpr auto kPause = std::chrono::milliseconds(50);

// Whether the opened file is still at `path`: its previous owner may have removed it.
bool is_at(const Fd& opened, const fs::path& path) {
    struct stat mine {
    }, there{};
    return fstat(opened.get(), &mine) == 0 && stat(path.c_str(), &there) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

}  // namespace

Result<OutputDirectory> OutputDirectory::open(const fs::path& path) {
    OutputDirectory output;
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    for (int tries = 0; tries < kMostTries; ++tries) {
        const auto error = output.made_.make(path);
        if (error && error != std::errc::no_such_file_or_directory)
            return problem(path, fmt::format("cannot make it: {}", error.message()));
        output.lock_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!output.lock_ && errno != ENOENT) return problem(path, std::strerror(errno));
        if (!output.lock_) {
            std::this_thread::sleep_for(kPause);
            continue;
        }
        while (flock(output.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK && errno != EINTR)
                return problem(path,
                               fmt::format("cannot be locked: {}; give an --output on another file system",
                                           std::strerror(errno)));
            if (std::chrono::steady_clock::now() > deadline)
                return problem(path, "another process has been preparing it for half an hour; end that");
            std::this_thread::sleep_for(kPause);
        }
        if (is_at(output.lock_, path)) return output;
    }
    return problem(path, "cannot make it: No such file or directory");
}

}  // namespace dp::trainer
