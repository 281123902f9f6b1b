// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/directory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <system_error>

#include "base/text.hpp"
#include "trainer/base/durable.hpp"
#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kDone = "DONE";

// The number in a name such as "step-000000351", if `path_of` gives it just this name.
std::optional<std::int64_t> number_in(const fs::path& entry,
                                      fs::path (*path_of)(const fs::path&, std::int64_t)) {
    constexpr std::string_view kDigits = "0123456789";
    const std::string name = entry.filename().string();
    const auto first = std::min(name.find_first_of(kDigits), name.size());
    const auto last = std::min(name.find_first_not_of(kDigits, first), name.size());
    const auto number = parse_number<std::int64_t>(std::string_view(name).substr(first, last - first));
    return number && path_of({}, *number) == name ? number : std::nullopt;
}

}  // namespace

fs::path checkpoint_path(const fs::path& directory, std::int64_t step) {
    return directory / fmt::format("step-{:09}", step);
}

std::optional<std::int64_t> checkpoint_step(const fs::path& path) {
    return number_in(path, checkpoint_path);
}

fs::path unfinished_path(const fs::path& directory, std::int64_t step) {
    return directory / fmt::format(".step-{:09}.unfinished", step);
}

std::string shard_name(std::int64_t rank, std::int64_t world) {
    return fmt::format("rank-{:05}-of-{:05}.f32", rank, world);
}

std::vector<std::int64_t> checkpoints_in(const fs::path& directory) {
    std::vector<std::int64_t> steps;
    for (const auto& entry : entries_of(directory)) {
        std::error_code ignored;
        if (const auto step = number_in(entry, checkpoint_path); step && fs::exists(entry / kDone, ignored))
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
        return fail(Fault::checkpoint, "{}: cannot rename it to {}: {}", unfinished.string(),
                    finished.filename().string(), error.message());
    return make_durable(directory);
}

tl::unexpected<Error> damaged(const fs::path& checkpoint, std::string_view what) {
    return fail(Fault::checkpoint, "the checkpoint {} {}", checkpoint.string(), what);
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
                       fmt::format("is damaged: the SHA-256 of {} is not the one in {}", kManifest, kDone));
    auto manifest = manifest_of(*text);
    if (!manifest && manifest.error().fault == Fault::checkpoint)
        return damaged(checkpoint, manifest.error().message);
    if (!manifest)
        return fail(Fault::usage, "the checkpoint {} {}", checkpoint.string(), manifest.error().message);
    if (const std::int64_t step = manifest->progress.step; checkpoint_path({}, step) != checkpoint.filename())
        return damaged(checkpoint, fmt::format("is damaged: its {} is of step {}", kManifest, step));
    return manifest;
}

void keep_newest(const fs::path& directory, std::int64_t count, const std::set<std::int64_t>& damaged) {
    for (const std::int64_t step : checkpoints_in(directory)) {
        if (damaged.contains(step) || --count >= 0) continue;
        // Under the name of an unfinished one first: whatever interrupts this, tidy() clears the rest away.
        const fs::path gone = unfinished_path(directory, step);
        std::error_code error;
        fs::remove_all(gone, error);
        fs::rename(checkpoint_path(directory, step), gone, error);
        if (!error && make_durable(directory)) fs::remove_all(gone, error);
    }
}

Try<void> set_aside(const fs::path& directory, std::int64_t step) {
    const fs::path from = checkpoint_path(directory, step), to = from.string() + ".damaged";
    std::error_code error;
    fs::remove_all(to, error);
    fs::rename(from, to, error);
    if (!error) return {};
    return dp::fail(fmt::format("{}: cannot rename it to {}: {}; remove it yourself", from.string(),
                                to.filename().string(), error.message()));
}

std::vector<std::string> tidy(const fs::path& directory) {
    std::vector<std::string> lines;
    std::error_code error;
    for (const auto& entry : entries_of(directory)) {
        const auto step = number_in(entry, checkpoint_path);
        if (number_in(entry, unfinished_path)) {
            fs::remove_all(entry, error);
            lines.push_back(
                error ? fmt::format("{}: cannot remove it: {}", entry.string(), error.message())
                      : fmt::format("removed {}, which an interrupted training left", entry.string()));
        } else if (number_in(entry, presence_file)) {
            fs::remove(entry, error);
        } else if (step && fs::is_directory(entry, error) && !fs::exists(entry / kDone, error) && !error) {
            const auto done = set_aside(directory, *step);
            lines.push_back(done ? fmt::format("the checkpoint {0} has no {1}; it is kept as {2}.damaged",
                                               entry.string(), kDone, entry.filename().string())
                                 : done.error().message);
        }
    }
    return lines;
}

fs::path presence_file(const fs::path& directory, std::int64_t rank) {
    return directory / fmt::format(".rank-{:05}.here", rank);
}

Result<void> check_presence(const fs::path& directory, std::int64_t world) {
    std::vector<std::int64_t> missing;
    for (std::int64_t rank = 0; rank < world; ++rank) {
        std::error_code ignored;
        if (!fs::exists(presence_file(directory, rank), ignored)) missing.push_back(rank);
    }
    if (missing.empty()) return {};
    const std::size_t named = std::min(missing.size(), std::size_t{8});
    return fail(Fault::usage,
                "--checkpoint-dir {}: rank 0 does not see what rank{} {}{} write{} there; it must be on a "
                "file system that all nodes share",
                directory.string(), missing.size() == 1 ? "" : "s",
                fmt::join(std::span(missing).first(named), ", "), named < missing.size() ? ", …" : "",
                missing.size() == 1 ? "s" : "");
}

}  // namespace dp::trainer
