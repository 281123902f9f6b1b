// SPDX-License-Identifier: Apache-2.0
#include "trainer/prepare/made_once.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "base/fd.hpp"
#include "base/host_name.hpp"
#include "trainer/base/files.hpp"
#include "trainer/data/prepared.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// The line of a whole one.
Result<std::optional<std::string>> found(const fs::path& directory, const std::string& from) {
    const auto prepared = read_prepared(directory);
    if (!prepared || !*prepared || (*prepared)->from != from) return std::nullopt;
    return (*prepared)->summary;
}

struct Lock {
    Fd file;
    bool has_waited = false;
};

Result<Lock> lock(const fs::path& file, std::chrono::minutes longest) {
    const auto problem = [&](const std::string& why) {
        return fail(Fault::prepare, "{}: {}; give another --cache-dir", file.string(), why);
    };
    Lock lock;
    lock.file.reset(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!lock.file) return problem(std::strerror(errno));
    const auto deadline = std::chrono::steady_clock::now() + longest;
    while (flock(lock.file.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return problem(fmt::format("cannot be locked: {}", std::strerror(errno)));
        if (std::chrono::steady_clock::now() > deadline)
            return problem(fmt::format("another process has held it for {} minutes", longest.count()));
        lock.has_waited = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return lock;
}

// In the lock's file is why the last work failed: a digit of the fault, and the message. For those who waited for it.
void tell_failure(const Fd& file, const Error& error) {
    const std::string text = std::to_string(static_cast<int>(error.fault)) + " " + error.message;
    if (ftruncate(file.get(), 0) == 0) (void)!pwrite(file.get(), text.data(), text.size(), 0);
}
std::optional<Error> failure_in(const fs::path& file) {
    const auto text = read_file(file);
    const auto space = text ? text->find(' ') : std::string::npos;
    if (space == std::string::npos) return std::nullopt;
    return Error{static_cast<Fault>(std::atoi(text->c_str())), text->substr(space + 1)};
}

// Also if an exception is thrown.
struct RemovedWithContents {
    fs::path path;
    ~RemovedWithContents() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
};

Result<std::string> make_and_move_whole(const fs::path& directory, const std::string& from,
                                        const std::function<Result<std::string>(const fs::path&)>& make) {
    const RemovedWithContents mine{directory.parent_path() / fmt::format(".{}.{}.{}",
                                                                         directory.filename().string(),
                                                                         host_name(), getpid())};
    fs::remove_all(mine.path);
    fs::create_directories(mine.path);
    auto summary = DP_TRY(make(mine.path));
    const auto prepared = DP_TRY(write_prepared(mine.path, from, std::move(summary)));
    std::error_code error;
    fs::rename(mine.path, directory, error);
    if (!error) return prepared.summary;
    // Another node was faster, or what is there is not whole.
    if (const auto theirs = DP_TRY(found(directory, from))) return *theirs;
    fs::remove_all(directory);
    fs::rename(mine.path, directory);
    return prepared.summary;
}

}  // namespace

Result<std::string> made_once(const fs::path& directory, const std::string& from,
                              const std::function<Result<std::string>(const fs::path&)>& make,
                              std::chrono::minutes longest) {
    if (auto there = DP_TRY(found(directory, from))) return *there;
    fs::create_directories(directory.parent_path());
    const fs::path file = directory.string() + ".lock";
    const auto held = DP_TRY(lock(file, longest));
    if (auto there = DP_TRY(found(directory, from))) return *there;
    if (held.has_waited)
        if (auto failure = failure_in(file)) return tl::unexpected(*std::move(failure));
    (void)!ftruncate(held.file.get(), 0);
    auto made = make_and_move_whole(directory, from, make);
    if (!made) tell_failure(held.file, made.error());
    return made;
}

}  // namespace dp::trainer
