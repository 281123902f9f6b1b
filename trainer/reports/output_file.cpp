// SPDX-License-Identifier: Apache-2.0
#include "trainer/reports/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "runtime/common/fd.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// Of errno.
tl::unexpected<Error> cannot_write(const fs::path& file) {
    return fail(Fault::usage, fmt::format("{}: cannot write: {}", file.string(), std::strerror(errno)));
}

// Not of a pipe or a device.
void remove_file(const fs::path& file) {
    std::error_code ignored;
    if (fs::is_regular_file(fs::symlink_status(file, ignored))) fs::remove(file, ignored);
}

}  // namespace

Result<void> can_be_written(const std::optional<fs::path>& file) {
    if (!file) return {};
    std::error_code ignored;
    const auto there = fs::status(*file, ignored).type();
    // Opening a pipe would wait for its reader.
    if (there == fs::file_type::fifo) return {};
    const Fd out(::open(file->c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (!out) return cannot_write(*file);
    if (there == fs::file_type::not_found) remove_file(*file);
    return {};
}

Result<void> write_output(const fs::path& file, std::string_view contents) {
    Fd out(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!out) return cannot_write(file);
    const auto failed = [&] {
        auto error = cannot_write(file);
        remove_file(file);
        return error;
    };
    while (!contents.empty()) {
        const ssize_t written = ::write(out.get(), contents.data(), contents.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return failed();
        contents.remove_prefix(static_cast<std::size_t>(written));
    }
    // Network file systems say only now that there is no room.
    if (::close(out.release()) != 0) return failed();
    return {};
}

}  // namespace dp::trainer
