// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>

#include "base/fd.hpp"
#include "trainer/base/durable.hpp"
#include "trainer/base/made_directories.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// Not for pipes or devices; for links, removes their target.
void remove_file(const fs::path& file) {
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) fs::remove(fs::canonical(file, ignored), ignored);
}

// Creates a file of one byte there and removes it again. Returns 0 or an errno, also for a full disk.
int try_to_write_in(const fs::path& directory) {
    std::random_device random;
    const fs::path trial = directory / fmt::format(".trial-{:08x}{:08x}", random(), random());
    Fd out(::open(trial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!out) return errno;
    const bool written = ::write(out.get(), "\n", 1) == 1 && ::close(out.release()) == 0;
    const int why = written ? 0 : errno;
    ::unlink(trial.c_str());
    return why;
}

// Leaves an existing file as it is, and does not create a new one, which another process may be about to do.
int try_to_write(const fs::path& file) {
    std::error_code ignored;
    const auto there = fs::status(file, ignored).type();
    // Opening a pipe would wait for its reader.
    if (there == fs::file_type::fifo) return 0;
    if (there == fs::file_type::not_found)
        return try_to_write_in(file.has_parent_path() ? file.parent_path() : ".");
    return Fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC)) ? 0 : errno;
}

tl::unexpected<Error> cannot_be_written(std::string_view option, const fs::path& path, int why,
                                        std::string_view kind) {
    return fail(Fault::usage, "{}: {} cannot be written: {}; give another {}", option, path.string(),
                std::strerror(why), kind);
}

}  // namespace

Result<void> can_be_written(std::string_view option, const std::optional<fs::path>& file) {
    const int why = file ? try_to_write(*file) : 0;
    return why == 0 ? Result<void>() : cannot_be_written(option, *file, why, "file");
}

Result<void> can_hold_files(std::string_view option, const std::optional<fs::path>& directory) {
    if (!directory) return {};
    MadeDirectories made;
    const std::error_code error = made.make(*directory);
    const int why = error ? error.value() : try_to_write_in(*directory);
    return why == 0 ? Result<void>() : cannot_be_written(option, *directory, why, "directory");
}

Result<void> write_output(const fs::path& file, std::string_view contents) {
    auto out = DP_TRY(DurableFile::create(file, Fault::usage));
    auto done = out.write(contents.data(), contents.size());
    if (done) done = out.finish();
    if (!done) remove_file(file);
    return done;
}

}  // namespace dp::trainer
