// SPDX-License-Identifier: Apache-2.0
#include "loop/write_record.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/errno_text.hpp"
#include "base/fd.hpp"
#include "record/entries.hpp"
#include "record/packing.hpp"

namespace dp {
namespace {

int failed(const std::string& what, int error) {
    std::printf("%s: %s\n", what.c_str(), errno_text(error).c_str());
    return 1;
}

// With its folders, as mkdir -p makes them. Where it fails, `error` is why: of the folder, if that is what is missing.
Fd create(const std::string& file, int& error) {
    int folder_error = ENOENT;
    for (size_t at = file.find('/', 1); at != file.npos; at = file.find('/', at + 1))
        if (mkdir(file.substr(0, at).c_str(), 0777) != 0 && errno != EEXIST && errno != ENOENT)
            folder_error = errno;
    Fd created(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    error = errno == ENOENT ? folder_error : errno;
    return created;
}

bool write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t size = write(fd, bytes.data(), bytes.size());
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) return false;
        bytes.remove_prefix(static_cast<size_t>(size));
    }
    return true;
}

// Whether there is nothing to read for that long; without a time, waits until there is.
bool nothing_comes(std::optional<std::chrono::milliseconds> wait) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, wait ? static_cast<int>(wait->count()) : -1) == 0;
}

}  // namespace

int write_record(const std::string& file) {
    // The daemon's end is this program's: it writes what the step's last moments were.
    for (const int number : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) signal(number, SIG_IGN);
    int error = 0;
    Fd out = create(file, error);
    if (!out) return failed(file, error);
    if (!write_all(out.get(), kRecordMagic)) return failed(file, errno);
    RecordPacker packer;
    std::array<char, 65536> some;
    SyncTimes times;
    const auto now = [] { return std::chrono::steady_clock::now(); };
    for (;;) {
        // The daemon does not wait for a slow disk at the end: what it has to say comes first.
        if (nothing_comes(times.wait(now()))) {
            // A pipe-like or special file system cannot.
            if (fdatasync(out.get()) != 0 && errno != EINVAL && errno != EROFS) return failed(file, errno);
            times.synced(now());
            continue;
        }
        const ssize_t size = read(STDIN_FILENO, some.data(), some.size());
        if (size < 0 && errno == EINTR) continue;
        const bool is_end = size <= 0;
        if (!write_all(out.get(),
                       is_end ? packer.finish() : packer.pack({some.data(), static_cast<size_t>(size)})))
            return failed(file, errno);
        // Some file systems say only then that they are full.
        if (is_end) return close(out.release()) == 0 ? 0 : failed(file, errno);
        times.written(now());
    }
}

}  // namespace dp
