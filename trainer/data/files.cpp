// SPDX-License-Identifier: Apache-2.0
//
// Whole files in and out: see files.hpp.
#include "trainer/data/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/common/fd.hpp"
#include "trainer/checkpoint/durable.hpp"
#include "trainer/sha256.hpp"

namespace dp::trainer {

Result<std::string> read_file(const std::filesystem::path& file) {
    const auto failed = [&] {
        return fail(Fault::usage, fmt::format("{}: cannot read: {}", file.string(), std::strerror(errno)));
    };
    const Fd in(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!in) return failed();
    std::string contents;
    struct stat facts {};
    if (fstat(in.get(), &facts) == 0 && facts.st_size > 0)
        contents.resize(static_cast<std::size_t>(facts.st_size));
    // To the end, whatever the size was said to be: a pipe has none, and a file may grow meanwhile.
    std::size_t filled = 0;
    for (;;) {
        if (filled == contents.size()) contents.resize(contents.size() + (std::size_t{1} << 16));
        const ssize_t got = read(in.get(), contents.data() + filled, contents.size() - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failed();
        if (got == 0) break;
        filled += static_cast<std::size_t>(got);
    }
    contents.resize(filled);
    return contents;
}

Result<void> write_file(const std::filesystem::path& file, std::string_view contents) {
    auto done = write_durably(file, contents);
    if (!done) return fail(Fault::prepare, std::move(done.error().message));
    return {};
}

std::string sha256(std::string_view bytes) {
    Sha256 sha;
    sha.update(bytes.data(), bytes.size());
    return hex_of(sha.digest());
}

Result<std::string> sha256_of_file(const std::filesystem::path& file) {
    const auto contents = read_file(file);
    if (!contents) return tl::make_unexpected(contents.error());
    return sha256(*contents);
}

}  // namespace dp::trainer
