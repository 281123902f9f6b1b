// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/directory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <system_error>

#include "trainer/base/durable.hpp"
#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kDone = "DONE";
constexpr std::string_view kPrefix = "step-", kUnfinished = ".unfinished";
constexpr std::string_view kPresence = ".rank-";

bool has_prefix(const fs::path& path, std::string_view prefix) {
    return path.filename().string().starts_with(prefix);
}

// Parses "step-000000351".
std::optional<std::int64_t> step_of(const fs::path& checkpoint) {
    const std::string name = checkpoint.filename().string();
    if (!name.starts_with(kPrefix)) return std::nullopt;
    std::int64_t step = 0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (error != std::errc() || stop != end || checkpoint_path({}, step) != name) return std::nullopt;
    return step;
}

// The entries of a directory; none if it cannot be read.
std::vector<fs::path> entries_of(const fs::path& directory) {
    std::vector<fs::path> entries;
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
        entries.push_back(at->path());
    return entries;
}

}  // namespace

fs::path checkpoint_path(const fs::path& directory, std::int64_t step) {
    return directory / fmt::format("{}{:09}", kPrefix, step);
}

fs::path unfinished_path(const fs::path& directory, std::int64_t step) {
    return directory / fmt::format(".{}{:09}{}", kPrefix, step, kUnfinished);
}

std::string shard_name(std::int64_t rank, std::int64_t world) {
    return fmt::format("rank-{:05}-of-{:05}.f32", rank, world);
}

std::vector<std::int64_t> checkpoints_in(const fs::path& directory) {
    std::vector<std::int64_t> steps;
    for (const auto& entry : entries_of(directory)) {
        std::error_code ignored;
        if (const auto step = step_of(entry); step && fs::exists(entry / kDone, ignored))
            steps.push_back(*step);
    }
    std::sort(steps.begin(), steps.end(), std::greater<>());
    return steps;
}

Result<void> publish(const fs::path& directory, const Manifest& manifest) {
    const std::int64_t step = manifest.progress.step;
    const fs::path unfinished = unfinished_path(directory, step), finished = checkpoint_path(directory, step);
    const std::string text = text_of(manifest);
    DP_TRY(write_durably(unfinished / kManifest, text));
    DP_TRY(write_durably(unfinished / kDone, sha256(text) + "\n"));
    DP_TRY(make_durable(unfinished));
    std::error_code error;
    fs::rename(unfinished, finished, error);
    if (error)
        return fail(Fault::checkpoint, fmt::format("{}: cannot rename it to {}: {}", unfinished.string(),
                                                   finished.filename().string(), error.message()));
    return make_durable(directory);
}

tl::unexpected<Error> damaged(const fs::path& checkpoint, std::string_view what) {
    return fail(Fault::checkpoint, fmt::format("the checkpoint {} {}", checkpoint.string(), what));
}

Error none_is_whole(const Error& damage, bool others) {
    if (damage.message.empty()) return {Fault::usage, ""};
    return {Fault::usage, damage.message + (others ? "; none there is whole; remove them all to begin anew"
                                                   : "; no older one is whole; remove it to begin anew")};
}

Result<Manifest> read_manifest(const fs::path& checkpoint) {
    const auto text = read_file(checkpoint / kManifest), done = read_file(checkpoint / kDone);
    if (!text || !done)
        return damaged(checkpoint, fmt::format("has no readable {}", text ? kDone : kManifest));
    if (*done != sha256(*text) + "\n")
        return damaged(checkpoint,
                       fmt::format("is damaged: {} has not the SHA-256 that {} says", kManifest, kDone));
    auto manifest = manifest_of(*text);
    if (!manifest && manifest.error().fault == Fault::checkpoint)
        return damaged(checkpoint, manifest.error().message);
    if (!manifest)
        return fail(Fault::usage,
                    fmt::format("the checkpoint {} {}", checkpoint.string(), manifest.error().message));
    if (const std::int64_t step = manifest->progress.step; checkpoint_path({}, step) != checkpoint.filename())
        return damaged(checkpoint, fmt::format("is damaged: its {} is of step {}", kManifest, step));
    return manifest;
}

void keep_newest(const fs::path& directory, std::int64_t count) {
    const auto steps = checkpoints_in(directory);
    for (std::size_t i = static_cast<std::size_t>(count); i < steps.size(); ++i) {
        // Under the name of an unfinished one first: whatever interrupts this, tidy() clears the rest away.
        const fs::path gone = unfinished_path(directory, steps[i]);
        std::error_code error;
        fs::remove_all(gone, error);
        fs::rename(checkpoint_path(directory, steps[i]), gone, error);
        if (!error && make_durable(directory)) fs::remove_all(gone, error);
    }
}

void set_aside(const fs::path& directory, std::int64_t step) {
    const fs::path from = checkpoint_path(directory, step);
    fs::path to = from;
    to += ".damaged";
    std::error_code error;
    fs::remove_all(to, error);
    fs::rename(from, to, error);
}

void tidy(const fs::path& directory) {
    std::error_code error;
    for (const auto& entry : entries_of(directory)) {
        const bool is_unfinished =
            has_prefix(entry, fmt::format(".{}", kPrefix)) && entry.extension() == kUnfinished;
        // Older trainers removed the mark first, and then the rest.
        const bool is_unmarked = step_of(entry) && !fs::exists(entry / kDone, error) && !error;
        if (is_unfinished || is_unmarked || has_prefix(entry, kPresence)) fs::remove_all(entry, error);
    }
}

fs::path presence_file(const fs::path& directory, std::int64_t rank) {
    return directory / fmt::format("{}{:05}.here", kPresence, rank);
}

Result<void> check_presence(const fs::path& directory, std::int64_t world) {
    std::vector<std::int64_t> missing;
    for (std::int64_t rank = 0; rank < world; ++rank) {
        std::error_code ignored;
        if (!fs::exists(presence_file(directory, rank), ignored)) missing.push_back(rank);
    }
    if (missing.empty()) return {};
    constexpr std::size_t kNamed = 8;
    const std::size_t named = std::min(missing.size(), kNamed);
    return fail(
        Fault::usage,
        fmt::format("--checkpoint-dir {}: what rank{} {}{} write{} there is not seen by rank 0; it must "
                    "be on a file system that all nodes share",
                    directory.string(), missing.size() == 1 ? "" : "s",
                    fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                    named < missing.size() ? ", …" : "", missing.size() == 1 ? "s" : ""));
}

}  // namespace dp::trainer
