// SPDX-License-Identifier: Apache-2.0
#include "dpctl/whole_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/errno_text.hpp"
#include "base/fd.hpp"
#include "base/text.hpp"

namespace dp {
namespace {

// A shell's redirections have small numbers.
constexpr int kMostDescriptors = 256;

using Writer = std::function<Try<void>(std::ostream&)>;

tl::unexpected<Failure> cannot_write(const std::string& path) {
    return fail(printable(path) + ": " + errno_text(errno));
}

std::optional<struct stat> stat_of(const std::string& path) {
    struct stat found {};
    return stat(path.c_str(), &found) == 0 ? std::optional(found) : std::nullopt;
}

bool is_open_here(const struct stat& file) {
    for (int descriptor = 0; descriptor < kMostDescriptors; ++descriptor) {
        struct stat one {};
        if (fstat(descriptor, &one) == 0 && one.st_dev == file.st_dev && one.st_ino == file.st_ino)
            return true;
    }
    return false;
}

mode_t rights_of_a_new_file() {
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

// Those of the file that is there. Where its group cannot be kept, another one gets nothing.
bool take_rights(int file, const std::optional<struct stat>& there) {
    if (!there) return fchmod(file, rights_of_a_new_file()) == 0;
    const bool has_group = fchown(file, static_cast<uid_t>(-1), there->st_gid) == 0;
    return fchmod(file, there->st_mode & (has_group ? 0777 : 0707)) == 0;
}

// `path`: what to call `file`.
Try<void> write_to(const std::string& file, const std::string& path, const Writer& write,
                   std::ios::openmode how) {
    std::ofstream out(file, std::ios::binary | how);
    if (!out) return cannot_write(path);
    try {
        out.exceptions(std::ios::badbit | std::ios::failbit);
        DP_TRY(write(out));
        out.close();  // some file systems say only then that they are full
    } catch (const std::ios::failure&) {
        return cannot_write(path);
    }
    return {};
}

}  // namespace

Try<void> write_whole_file(const std::string& path, const Writer& write) {
    const auto there = stat_of(path);
    if (there && (!S_ISREG(there->st_mode) || is_open_here(*there)))
        return write_to(path, path, write, std::ios::app);
    if (there && access(path.c_str(), W_OK) != 0) return cannot_write(path);
    std::error_code ignored;
    // A link that leads nowhere yet: its file is made where it leads to.
    if (!there && std::filesystem::is_symlink(path, ignored))
        return write_to(path, path, write, std::ios::trunc);
    // Of a link, what it leads to.
    const auto target = there ? std::filesystem::canonical(path, ignored) : std::filesystem::path(path);
    std::string temporary = (target.parent_path() / ".dpctl-XXXXXX").string();
    const Fd made(mkostemp(temporary.data(), O_CLOEXEC));
    // A file that may be written in a folder that may not.
    if (!made && there && (errno == EACCES || errno == EPERM))
        return write_to(path, path, write, std::ios::trunc);
    if (!made) return cannot_write(path);
    Try<void> written = write_to(temporary, path, write, std::ios::trunc);
    if (written && !(take_rights(made.get(), there) && fsync(made.get()) == 0 &&
                     rename(temporary.c_str(), target.c_str()) == 0))
        written = cannot_write(path);
    if (!written) unlink(temporary.c_str());
    return written;
}

}  // namespace dp
