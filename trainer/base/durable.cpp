// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/durable.hpp"

#include <fcntl.h>

#include <cerrno>

namespace dp::trainer {

Result<DurableFile> DurableFile::create(const std::filesystem::path& file) {
    Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd) return fail_with_errno(Fault::checkpoint, file.string() + ": cannot write");
    return DurableFile(file, std::move(fd));
}

Result<void> DurableFile::write(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t written = ::write(fd_.get(), at, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_with_errno(Fault::checkpoint, file_.string() + ": cannot write");
        at += written;
        bytes -= static_cast<std::size_t>(written);
    }
    return {};
}

Result<void> DurableFile::finish() {
    // Network file systems report a full disk only now.
    if (::fsync(fd_.get()) != 0 || ::close(fd_.release()) != 0)
        return fail_with_errno(Fault::checkpoint, file_.string() + ": cannot write");
    return {};
}

Result<void> write_durably(const std::filesystem::path& file, std::string_view text) {
    auto out = DP_TRY(DurableFile::create(file));
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
