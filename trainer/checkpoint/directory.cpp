// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/directory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <system_error>

#include "trainer/base/durable.hpp"
#include "trainer/base/sha256.hpp"

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

std::optional<std::string> content_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    if (!in) return std::nullopt;
    return text;
}

std::string sha256_of(std::string_view text) {
    Sha256 sha;
    sha.update(text.data(), text.size());
    return hex_of(sha.digest());
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
    if (auto done = write_durably(unfinished / kManifest, text); !done) return done;
    if (auto done = write_durably(unfinished / kDone, sha256_of(text) + "\n"); !done) return done;
    if (auto done = make_durable(unfinished); !done) return done;
    std::error_code error;
    if (!fs::exists(finished / kDone, error)) fs::remove_all(finished, error);  // the rest of a removed one
    fs::rename(unfinished, finished, error);
    if (error)
        return fail(Fault::checkpoint, fmt::format("{}: cannot rename it to {}: {}", unfinished.string(),
                                                   finished.filename().string(), error.message()));
    return make_durable(directory);
}

Result<Manifest> read_manifest(const fs::path& checkpoint) {
    const auto problem = [&](std::string_view what) {
        return fail(Fault::usage, fmt::format("the checkpoint {} {}", checkpoint.string(), what));
    };
    const auto broken = [&](std::string_view what) {
        return problem(fmt::format("{}; remove it to go on from an earlier one, or to begin anew", what));
    };
    const auto text = content_of(checkpoint / kManifest), done = content_of(checkpoint / kDone);
    if (!text || !done) return broken(fmt::format("has no readable {}", text ? kDone : kManifest));
    if (*done != sha256_of(*text) + "\n")
        return broken(fmt::format("is damaged: {} has not the SHA-256 that {} says", kManifest, kDone));
    auto manifest = manifest_of(*text);
    if (!manifest) return problem(manifest.error().message);
    return manifest;
}

void keep_newest(const fs::path& directory, std::int64_t count) {
    const auto steps = checkpoints_in(directory);
    for (std::size_t i = static_cast<std::size_t>(count); i < steps.size(); ++i) {
        const fs::path old = checkpoint_path(directory, steps[i]);
        // Remove the marker first: half a checkpoint must not look complete.
        std::error_code error;
        if (fs::remove(old / kDone, error)) fs::remove_all(old, error);
    }
}

void tidy(const fs::path& directory) {
    std::error_code error;
    for (const auto& entry : entries_of(directory)) {
        const bool unfinished =
            has_prefix(entry, fmt::format(".{}", kPrefix)) && entry.extension() == kUnfinished;
        if (unfinished || has_prefix(entry, kPresence)) fs::remove_all(entry, error);
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
