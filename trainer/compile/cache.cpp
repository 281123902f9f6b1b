// SPDX-License-Identifier: Apache-2.0
//
// See cache.hpp.
#include "trainer/compile/cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <system_error>
#include <vector>

#include "trainer/base/durable.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".cache";
constexpr const char* kUnfinished = ".part";
constexpr auto kAbandoned = std::chrono::hours(24);
constexpr std::int64_t kInUse = 3600;  // seconds
// Not every use is noted: thousands of ranks may start at once in one shared home.
constexpr std::int64_t kNoteworthy = 600;

std::int64_t random_number() {
    std::random_device device;
    return static_cast<std::int64_t>((std::uint64_t{device()} << 32 | device()) >> 1);
}

// A name in the directory that no other writer uses, on any node.
fs::path unfinished_file(const fs::path& directory) {
    return directory / fmt::format(".{:016x}{}", random_number(), kUnfinished);
}

Error cannot_write(const fs::path& directory, const std::string& why) {
    return {Fault::usage,
            fmt::format("--cache-dir {}: {}; give a directory that can be written", directory.string(), why)};
}

// Calls look(file) for each file there; for none if the directory cannot be read.
template <typename Look>
void for_each_file(const fs::path& directory, Look look) {
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
        look(at->path());
}

struct Stored {
    fs::path file;
    std::int64_t bytes;
    std::int64_t used;  // seconds since 1970
};

std::optional<Stored> stored_in(const fs::path& file) {
    struct stat facts {};
    if (file.extension() != kEnding || ::stat(file.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode))
        return std::nullopt;
    return Stored{file, facts.st_size, facts.st_mtim.tv_sec};
}

std::vector<Stored> all_in(const fs::path& directory) {
    std::vector<Stored> all;
    for_each_file(directory, [&](const fs::path& file) {
        if (auto one = stored_in(file)) all.push_back(std::move(*one));
    });
    return all;
}

std::int64_t bytes_of(const std::vector<Stored>& entries) {
    return std::accumulate(entries.begin(), entries.end(), std::int64_t{0},
                           [](std::int64_t sum, const Stored& one) { return sum + one.bytes; });
}

// If this user may not write to it, it stays as it is.
void note_use(const fs::path& file) {
    const auto stored = stored_in(file);
    if (stored && std::time(nullptr) - stored->used >= kNoteworthy)
        ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);
}

}  // namespace

Lookup Cache::find(const CacheKey& key) const {
    const fs::path file = directory_ / file_name(key);
    std::error_code ignored;
    if (fs::status(file, ignored).type() == fs::file_type::not_found) return {};
    auto entry = Entry::open(file);
    if (!entry) return {std::nullopt, entry.error().message};
    if (entry->key().kind != key.kind || entry->key().what != key.what)
        return {std::nullopt, "made for something else"};
    if (const auto other = difference(entry->key().from, key.from))
        return {std::nullopt, fmt::format("stale ({})", *other)};
    note_use(file);
    return {std::move(*entry), ""};
}

Result<MadeDirectories> Cache::open_for_writing() const {
    MadeDirectories directories;
    std::error_code error = directories.make(directory_);
    if (error) return tl::unexpected(cannot_write(directory_, "cannot make it: " + error.message()));
    const auto now = fs::file_time_type::clock::now();
    for_each_file(directory_, [&](const fs::path& file) {
        std::error_code ignored;
        if (file.extension() != kUnfinished || file.filename().string().front() != '.') return;
        if (now - fs::last_write_time(file, ignored) > kAbandoned) fs::remove(file, ignored);
    });
    const fs::path trial = unfinished_file(directory_);
    const auto made = write_durably(trial, "trial");
    fs::remove(trial, error);
    if (!made) return tl::unexpected(cannot_write(directory_, made.error().message));
    return directories;
}

Result<void> Cache::put(const CacheKey& key, const nlohmann::json& content,
                        std::span<const Block> blocks) const {
    const fs::path unfinished = unfinished_file(directory_);
    auto written = write_entry(unfinished, key, content, blocks);
    std::error_code error;
    if (written) fs::rename(unfinished, directory_ / file_name(key), error);
    if (written && !error) return {};
    const std::string why = written ? error.message() : written.error().message;
    fs::remove(unfinished, error);
    return tl::unexpected(cannot_write(directory_, why));
}

std::int64_t Cache::bytes() const {
    return bytes_of(all_in(directory_));
}

std::int64_t Cache::prune(std::int64_t bytes) const {
    auto entries = all_in(directory_);
    std::sort(entries.begin(), entries.end(),
              [](const Stored& one, const Stored& other) { return one.used < other.used; });
    std::int64_t left = bytes_of(entries), removed = 0;
    const std::int64_t in_use = std::time(nullptr) - kInUse;
    for (const Stored& oldest : entries) {
        if (left <= bytes || oldest.used > in_use) break;
        std::error_code error;
        if (!fs::remove(oldest.file, error)) continue;
        left -= oldest.bytes;
        ++removed;
    }
    return removed;
}

std::optional<fs::path> cache_directory(const CacheOptions& options) {
    if (options.off || options.directory == "none") return std::nullopt;
    if (options.directory) return options.directory;
    return default_cache_directory(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
}

std::optional<fs::path> default_cache_directory(const char* xdg_cache_home, const char* home) {
    const auto absolute = [](const char* text) { return text != nullptr && *text == '/'; };
    if (absolute(xdg_cache_home)) return fs::path(xdg_cache_home) / "slurm-dp";
    if (absolute(home)) return fs::path(home) / ".cache" / "slurm-dp";
    return std::nullopt;
}

std::string age_text(std::int64_t seconds) {
    constexpr std::int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
    seconds = std::max<std::int64_t>(seconds, 0);  // of a file server whose clock is ahead
    if (seconds < 2 * kMinute) return fmt::format("{} s", seconds);
    if (seconds < 2 * kHour) return fmt::format("{} min", seconds / kMinute);
    if (seconds < 2 * kDay) return fmt::format("{} h", seconds / kHour);
    return fmt::format("{} days", seconds / kDay);
}

}  // namespace dp::trainer
