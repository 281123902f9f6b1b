// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/durable.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

namespace dp::trainer {

DurableFile::DurableFile(const std::filesystem::path& file, Fault fault)
    : file_(file), fault_(fault), fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}

tl::unexpected<Error> DurableFile::cannot_write() const {
    return fail_with_errno(fault_, file_.string() + ": cannot write");
}

Result<DurableFile> DurableFile::create(const std::filesystem::path& file, Fault fault) {
    DurableFile made(file, fault);
    if (!made.fd_) return made.cannot_write();
    return made;
}

Result<void> DurableFile::write(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t written = ::write(fd_.get(), at, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return cannot_write();
        at += written;
        bytes -= static_cast<std::size_t>(written);
    }
    return {};
}

Result<void> DurableFile::sync() {
    // Network file systems report a full disk only now.
    struct stat facts {};
    const bool is_on_disk = ::fstat(fd_.get(), &facts) != 0 || S_ISREG(facts.st_mode);  // no pipe or device
    if (is_on_disk && ::fsync(fd_.get()) != 0) return cannot_write();
    return {};
}

Result<void> DurableFile::finish() {
    DP_TRY(sync());
    if (::close(fd_.release()) != 0) return cannot_write();
    return {};
}

Result<void> write_durably(const std::filesystem::path& file, std::string_view text, Fault fault) {
    auto out = DP_TRY(DurableFile::create(file, fault));
    DP_TRY(out.write(text.data(), text.size()));
    return out.finish();
}

Result<void> make_durable(const std::filesystem::path& directory) {
    const Fd opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // EINVAL: the file system does not support it.
    if (!opened || (::fsync(opened.get()) != 0 && errno != EINVAL))
        return fail_with_errno(Fault::checkpoint, directory.string() + ": cannot write");
    return {};
}

}  // namespace dp::trainer
