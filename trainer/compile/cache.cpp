// SPDX-License-Identifier: Apache-2.0
//
// See cache.hpp.
#include "trainer/compile/cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <system_error>

#include "trainer/checkpoint/durable.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".cache";
constexpr const char* kUnfinished = ".part";
constexpr auto kAbandoned = std::chrono::hours(24);

std::int64_t random_number() {
    std::random_device device;
    return static_cast<std::int64_t>((std::uint64_t{device()} << 32 | device()) >> 1);
}

// A name in the directory that no other writer has, on whichever node.
fs::path unfinished_file(const fs::path& directory) {
    return directory / fmt::format(".{:016x}{}", random_number(), kUnfinished);
}

Error cannot_write(const fs::path& directory, const std::string& why) {
    return {Fault::usage,
            fmt::format("--cache-dir {}: {}; give a directory that can be written", directory.string(), why)};
}

// Calls look(file) for each file there; none where the directory cannot be read.
template <typename Look>
void for_each_file(const fs::path& directory, Look look) {
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
        look(at->path());
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
    return {std::move(*entry), ""};
}

Result<void> Cache::open_for_writing() const {
    std::error_code error;
    fs::create_directories(directory_, error);
    if (error) return tl::make_unexpected(cannot_write(directory_, "cannot make it: " + error.message()));
    const auto now = fs::file_time_type::clock::now();
    for_each_file(directory_, [&](const fs::path& file) {
        std::error_code ignored;
        if (file.extension() != kUnfinished || file.filename().string().front() != '.') return;
        if (now - fs::last_write_time(file, ignored) > kAbandoned) fs::remove(file, ignored);
    });
    const fs::path trial = unfinished_file(directory_);
    const auto made = write_durably(trial, "trial");
    fs::remove(trial, error);
    if (!made) return tl::make_unexpected(cannot_write(directory_, made.error().message));
    return {};
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
    return tl::make_unexpected(cannot_write(directory_, why));
}

std::int64_t Cache::bytes() const {
    std::int64_t sum = 0;
    for_each_file(directory_, [&](const fs::path& file) {
        std::error_code error;
        const auto size = fs::file_size(file, error);
        if (!error && file.extension() == kEnding) sum += static_cast<std::int64_t>(size);
    });
    return sum;
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
