// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <regex>

#include "trainer/base/durable.hpp"
#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr auto kAbandoned = std::chrono::hours(24);
constexpr std::int64_t kInUse = 3600;  // seconds
// Not every use is noted: thousands of ranks may start at once in one shared home.
constexpr std::int64_t kNoteworthy = 600;

// A name in the directory that no other writer uses, on any node.
fs::path unfinished_file(const fs::path& directory) {
    std::random_device random;
    return directory / fmt::format(".{:08x}{:08x}.part", random(), random());
}

tl::unexpected<Error> cannot_write(const fs::path& directory, const std::string& why) {
    return fail(Fault::usage, "--cache-dir {}: {}; give a directory that can be written", directory.string(),
                why);
}

// Whether it is named like an entry, or one that is being written: a user's directory may hold other files.
bool is_entry(const std::string& name) {
    return std::regex_match(name, std::regex("(plan|data)-[0-9a-f]{64}\\.cache"));
}
bool is_unfinished(const std::string& name) {
    return std::regex_match(name, std::regex("\\.[0-9a-f]{16}\\.part"));
}

struct Stored {
    fs::path file;
    std::int64_t bytes;
    std::int64_t used;  // seconds since 1970
};

std::vector<Stored> all_in(const fs::path& directory) {
    std::vector<Stored> all;
    for (const fs::path& file : entries_of(directory)) {
        struct stat facts {};
        if (is_entry(file.filename()) && ::stat(file.c_str(), &facts) == 0 && S_ISREG(facts.st_mode))
            all.push_back({file, facts.st_size, facts.st_mtim.tv_sec});
    }
    return all;
}

std::int64_t bytes_of(const std::vector<Stored>& entries) {
    std::int64_t sum = 0;
    for (const Stored& one : entries) sum += one.bytes;
    return sum;
}

}  // namespace

Lookup Cache::find(const CacheKey& key) const {
    const fs::path file = directory_ / file_name(key);
    std::error_code ignored;
    if (fs::status(file, ignored).type() == fs::file_type::not_found) return {};
    auto entry = open_entry(file);
    if (!entry) return {std::nullopt, entry.error().message};
    if (entry->key.kind != key.kind || entry->key.what != key.what)
        return {std::nullopt, "made for something else"};
    if (const std::string other = difference(entry->key.from, key.from); !other.empty())
        return {std::nullopt, fmt::format("stale ({})", other)};
    // If this user may not write to it, it stays as it is.
    if (std::time(nullptr) - entry->used >= kNoteworthy) ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);
    return {std::move(*entry), ""};
}

std::optional<std::string> Cache::other_value(const CacheKey& key, const std::string& fact) const {
    std::optional<std::string> value;
    std::int64_t used = 0;
    for (const Stored& one : all_in(directory_)) {
        const auto entry = open_entry(one.file);
        if (!entry || entry->key.kind != key.kind || difference(entry->key.what, key.what) != fact) continue;
        const auto found = entry->key.what.find(fact);
        if (found == entry->key.what.end() || (value && one.used < used)) continue;
        value = found->second;
        used = one.used;
    }
    return value;
}

Result<MadeDirectories> Cache::open_for_writing() const {
    MadeDirectories directories;
    std::error_code error = directories.make(directory_);
    if (error) return cannot_write(directory_, "cannot make it: " + error.message());
    const auto now = fs::file_time_type::clock::now();
    for (const fs::path& file : entries_of(directory_)) {
        std::error_code ignored;
        if (is_unfinished(file.filename()) && now - fs::last_write_time(file, ignored) > kAbandoned)
            fs::remove(file, ignored);
    }
    const fs::path trial = unfinished_file(directory_);
    const auto made = write_durably(trial, "trial");
    fs::remove(trial, error);
    if (!made) return cannot_write(directory_, made.error().message);
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
    return cannot_write(directory_, why);
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
