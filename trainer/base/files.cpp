// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <system_error>

#include "trainer/base/durable.hpp"
#include "trainer/base/sha256.hpp"

namespace dp::trainer {
namespace {

tl::unexpected<Error> cannot_read(const std::filesystem::path& file, const std::string& why) {
    return fail(Fault::usage, "{}: cannot read: {}", file.string(), why);
}

}  // namespace

Try<Fd> open_regular(const std::filesystem::path& file) {
    Fd in(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat facts {};
    if (!in || fstat(in.get(), &facts) != 0) return dp::fail(errno_text(errno));
    if (S_ISREG(facts.st_mode)) return in;
    return dp::fail(std::string(S_ISDIR(facts.st_mode)    ? std::strerror(EISDIR)
                                : S_ISFIFO(facts.st_mode) ? "it is a pipe, not a file"
                                                          : "it is not a regular file"));
}

Try<void> read_at(const Fd& file, std::int64_t at, void* to, std::size_t count) {
    auto* next = static_cast<char*>(to);
    while (count > 0) {
        const ssize_t got = TEMP_FAILURE_RETRY(pread(file.get(), next, count, at));
        if (got <= 0) return dp::fail(got == 0 ? "cut short" : errno_text(errno));
        next += got;
        at += got;
        count -= static_cast<std::size_t>(got);
    }
    return {};
}

Result<SizedFile> open_sized(const std::filesystem::path& file) {
    auto in = open_regular(file);
    struct stat facts {};
    if (in && fstat(in->get(), &facts) != 0) return cannot_read(file, errno_text(errno));
    if (!in) return cannot_read(file, in.error().message);
    return SizedFile{std::move(*in), facts.st_size};
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory) {
    std::vector<std::filesystem::path> entries;
    std::error_code error;
    for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error))
        entries.push_back(at->path());
    return entries;
}

Result<std::string> read_file(const std::filesystem::path& file) {
    const auto in = open_regular(file);
    if (!in) return cannot_read(file, in.error().message);
    std::string contents;
    struct stat facts {};
    if (fstat(in->get(), &facts) == 0) contents.resize(static_cast<std::size_t>(facts.st_size));
    // To the end, whatever the size was said to be: a file may grow meanwhile, and those of /proc have none.
    std::size_t filled = 0;
    for (;;) {
        if (filled == contents.size()) contents.resize(contents.size() + (std::size_t{1} << 16));
        const ssize_t got =
            TEMP_FAILURE_RETRY(read(in->get(), contents.data() + filled, contents.size() - filled));
        if (got < 0) return cannot_read(file, errno_text(errno));
        if (got == 0) break;
        filled += static_cast<std::size_t>(got);
    }
    contents.resize(filled);
    return contents;
}

Result<void> write_file(const std::filesystem::path& file, std::string_view contents) {
    return write_durably(file, contents, Fault::prepare);
}

std::string sha256(std::string_view bytes) {
    Sha256 sha;
    sha.update(bytes.data(), bytes.size());
    return hex_of(sha.digest());
}

Result<std::string> sha256_of_file(const std::filesystem::path& file) {
    const auto in = open_regular(file);
    if (!in) return cannot_read(file, in.error().message);
    Sha256 sha;
    std::vector<char> piece(256 * 1024);  // stays in the CPU's cache; a file may be larger than memory
    for (;;) {
        const ssize_t got = TEMP_FAILURE_RETRY(read(in->get(), piece.data(), piece.size()));
        if (got < 0) return cannot_read(file, errno_text(errno));
        if (got == 0) return hex_of(sha.digest());
        sha.update(piece.data(), static_cast<std::size_t>(got));
    }
}

Result<void> check_hash(const std::filesystem::path& file, std::string_view expected, std::string_view how) {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored))
        return fail(Fault::usage, "{}: missing; fetch it with `{}`", file.string(), how);
    const auto found = DP_TRY(sha256_of_file(file));
    if (found == expected) return {};
    // The remedy comes first: when ranks compare messages, the end of a long line is cut.
    return fail(Fault::usage,
                "{}: not the published file; fetch it again with `{}` (its SHA-256 is {}, not {})",
                file.string(), how, found, expected);
}

}  // namespace dp::trainer
