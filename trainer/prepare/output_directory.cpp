// SPDX-License-Identifier: Apache-2.0
#include "trainer/prepare/output_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>

#include "base/fd.hpp"
#include "trainer/base/made_directories.hpp"
#include "trainer/data/prepared.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// Below the output while it is being made; what a killed process left there is removed.
constexpr const char* kScratch = ".unfinished";

// The directory to fill, which one process at a time has locked. A new one that is not filled is removed.
struct OutputDirectory {
    Fd lock;
    MadeDirectories made;  // removed before the lock is
};

// Whether the opened directory is still at `path`: its previous owner may have removed it.
bool is_at(const Fd& opened, const fs::path& path) {
    struct stat mine {
    }, there{};
    return fstat(opened.get(), &mine) == 0 && stat(path.c_str(), &there) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

// Makes it and what is missing above it, and waits until no other process has it.
Result<OutputDirectory> open_output(const fs::path& path, std::chrono::minutes longest) {
    constexpr auto kPause = std::chrono::milliseconds(50);
    const auto problem = [&](const std::string& why) {
        return fail(Fault::prepare, "{}: {}", path.string(), why);
    };
    OutputDirectory output;
    const auto deadline = std::chrono::steady_clock::now() + longest;
    // Another process that created the parent directories may remove them at any time.
    for (int tries = 0; tries < 10; ++tries) {
        const auto error = output.made.make(path);
        if (error && error != std::errc::no_such_file_or_directory)
            return problem(fmt::format("cannot make it: {}", error.message()));
        output.lock.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!output.lock && errno != ENOENT) return problem(std::strerror(errno));
        if (!output.lock) {
            std::this_thread::sleep_for(kPause);
            continue;
        }
        while (flock(output.lock.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK && errno != EINTR)
                return problem(fmt::format("cannot be locked: {}; give an --output on another file system",
                                           std::strerror(errno)));
            if (std::chrono::steady_clock::now() > deadline)
                return problem(
                    fmt::format("another process has been preparing it for {} minutes; end that process",
                                longest.count()));
            std::this_thread::sleep_for(kPause);
        }
        if (is_at(output.lock, path)) return output;
    }
    return problem("cannot make it: No such file or directory");
}

// Makes everything below `scratch`, then moves it to `output`; prepared.json, which says so, comes last.
Result<std::string> make_and_move(const fs::path& output, const std::string& from, const MakeFiles& make,
                                  const fs::path& scratch) {
    const fs::path result = scratch / "result";
    fs::create_directories(result);
    auto summary = DP_TRY(make(scratch, result));
    auto prepared = DP_TRY(write_prepared(result, from, std::move(summary)));
    for (const auto& [name, hash] : prepared.files) fs::rename(result / name, output / name);
    fs::rename(result / kPreparedFile, output / kPreparedFile);
    return prepared.summary;
}

// Also if an exception is thrown.
struct RemovedAtTheEnd {
    const fs::path& path;
    ~RemovedAtTheEnd() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
};

// The lock is held.
Result<std::string> fill(const fs::path& output, const std::string& from, const MakeFiles& make) {
    const auto before = DP_TRY(read_prepared(output));
    if (before && before->from == from) return before->summary;
    if (before)
        return fail(Fault::usage, "{}: holds other data: {}; give another --output, or remove it",
                    output.string(), before->from);
    const fs::path scratch = output / kScratch;
    fs::remove_all(scratch);
    if (!fs::is_empty(output))
        return fail(Fault::usage,
                    "{}: is not empty and was not made by `trainer prepare`; give another --output",
                    output.string());
    const RemovedAtTheEnd removed{scratch};
    return make_and_move(output, from, make, scratch);
}

}  // namespace

Result<std::string> fill_directory(const fs::path& path, const std::string& from, const MakeFiles& make,
                                   std::chrono::minutes longest) {
    auto output = DP_TRY(open_output(path, longest));
    auto summary = DP_TRY(fill(path, from, make));
    output.made.keep();
    return summary;
}

}  // namespace dp::trainer
