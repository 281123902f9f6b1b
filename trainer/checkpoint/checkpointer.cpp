// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/checkpointer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "trainer/base/durable.hpp"
#include "trainer/checkpoint/directory.hpp"
#include "trainer/parallel/agreement.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// What rank 0 must know about each rank's shard, as numbers that ranks can exchange: the SHA-256, the sum of
// losses, the sum of correct predictions.
constexpr std::size_t kShardFacts = 4 + 2 + 1;

std::array<std::int64_t, kShardFacts> facts_of(const WrittenShard& shard, const Progress& progress) {
    std::array<std::int64_t, kShardFacts> facts{};
    std::memcpy(facts.data(), shard.digest.data(), shard.digest.size());
    facts[4] = std::bit_cast<std::int64_t>(progress.loss);
    facts[5] = std::bit_cast<std::int64_t>(progress.correct);
    facts[6] = shard.is_finite ? 1 : 0;
    return facts;
}

bool is_finite(const std::int64_t* facts) {
    return facts[6] != 0 && std::isfinite(std::bit_cast<double>(facts[4]));
}

StoredShard shard_of_facts(const std::int64_t* facts) {
    Sha256::Digest digest;
    std::memcpy(digest.data(), facts, digest.size());
    return {hex_of(digest), std::bit_cast<double>(facts[4]), std::bit_cast<double>(facts[5])};
}

std::string host() {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    return name.data();
}

// Checks that rank 0 sees all shards, at their full length.
Result<void> check_shards_seen(const fs::path& unfinished, const Manifest& manifest) {
    for (std::int64_t rank = 0; rank < manifest.world(); ++rank) {
        std::error_code error;
        const auto bytes = fs::file_size(unfinished / shard_name(rank, manifest.world()), error);
        if (error ||
            static_cast<std::int64_t>(bytes) != shard_bytes(manifest.vectors, rank, manifest.world()))
            return fail(
                Fault::checkpoint,
                fmt::format("{}: the shard of rank {} is not seen whole by rank 0: --checkpoint-dir must "
                            "be on a file system that all nodes share",
                            unfinished.string(), rank));
    }
    return {};
}

}  // namespace

Checkpointer::Checkpointer(const CheckpointPlan& plan, Continuation now, std::string data_source,
                           std::vector<Vector> vectors, Device& device, Communicator& communicator)
    : plan_(plan),
      now_(std::move(now)),
      data_source_(std::move(data_source)),
      vectors_(std::move(vectors)),
      device_(device),
      communicator_(communicator) {
    for (const auto& vector : vectors_) now_.vectors.push_back(vector.name);
}

fs::path Checkpointer::path_of(std::int64_t step) const {
    return checkpoint_path(plan_.directory, step);
}

Result<void> Checkpointer::together(const Result<void>& mine) {
    return all_or_none(mine, device_, communicator_);
}

// ---- restore

Result<void> Checkpointer::prepare_directory() {
    const fs::path& directory = plan_.directory;
    Result<void> claimed;
    if (is_first()) {
        auto mine = DirectoryLock::make(directory);
        if (mine) {
            claim_ = std::move(*mine);
            tidy(directory);
        } else {
            claimed = tl::unexpected(mine.error());
        }
    }
    DP_TRY(together(claimed));
    const fs::path here = presence_file(directory, communicator_.rank());
    Result<void> written = write_durably(here, "\n");
    std::error_code error;
    if (!written && !fs::is_directory(directory, error))
        written = fail(Fault::usage, fmt::format("--checkpoint-dir {}: not there on {}; it must be on a file "
                                                 "system that all nodes share",
                                                 directory.string(), host()));
    else if (!written)
        written = fail(Fault::usage,
                       fmt::format("--checkpoint-dir {}: {}", directory.string(), written.error().message));
    auto done = together(written);
    if (done) done = together(is_first() ? check_presence(directory, communicator_.size()) : Result<void>{});
    fs::remove(here, error);
    if (!done) (void)together({});  // so that rank 0 finds the directory empty, if it has made it
    return done;
}

// What --resume says of the checkpoints that rank 0 sees.
Result<void> Checkpointer::check_resume() {
    Result<void> allowed;
    if (is_first()) {
        const bool are_some = !checkpoints_in(plan_.directory).empty();
        if (!are_some && plan_.resume == Resume::must)
            allowed = fail(Fault::usage, fmt::format("--checkpoint-dir {}: no checkpoint there, and "
                                                     "--resume=must asks for one",
                                                     plan_.directory.string()));
        if (are_some && plan_.resume == Resume::never)
            allowed = fail(Fault::usage, fmt::format("--checkpoint-dir {}: there are checkpoints, and "
                                                     "--resume=never asks for none; give another directory",
                                                     plan_.directory.string()));
    }
    return together(allowed);
}

// Of the checkpoints that rank 0 sees.
Result<std::optional<std::int64_t>> Checkpointer::newest_before(std::int64_t step) {
    std::int64_t found = 0;  // none
    if (is_first()) {
        const auto steps = checkpoints_in(plan_.directory);
        const auto older = std::find_if(steps.begin(), steps.end(), [&](auto one) { return one < step; });
        if (older != steps.end()) found = *older;
    }
    const auto all = DP_TRY(gather_of_all_ranks(std::array{found}, device_, communicator_));
    return all.front() == 0 ? std::nullopt : std::optional(all.front());
}

Result<Manifest> Checkpointer::open(std::int64_t step) {
    auto manifest = DP_TRY(read_manifest(path_of(step)));
    if (auto fits = check_fits(manifest, now_); !fits)
        return fail(Fault::usage,
                    fmt::format("the checkpoint {} {}; or begin anew in another --checkpoint-dir",
                                path_of(step).string(), fits.error().message));
    return manifest;
}

// Fault::checkpoint: it is damaged.
Result<Restored> Checkpointer::restore_from(std::int64_t step) {
    const fs::path path = path_of(step);
    const auto manifest = open(step);
    DP_TRY(together(manifest ? Result<void>{} : tl::unexpected(manifest.error())));
    // The ranks divide the shards among themselves, whatever the number of ranks that wrote them.
    const std::int64_t rank = communicator_.rank(), world = communicator_.size();
    Progress progress = manifest->progress;
    Result<void> sound;
    for (std::int64_t theirs = rank; sound && theirs < manifest->world(); theirs += world) {
        sound = verify_shard(path, *manifest, theirs);
        progress.loss += manifest->shards[static_cast<std::size_t>(theirs)].loss;
        progress.correct += manifest->shards[static_cast<std::size_t>(theirs)].correct;
    }
    DP_TRY(together(sound));
    const auto filled = read_vectors(path, *manifest, now_.training.parameters, vectors_, device_);
    DP_TRY(together(filled));
    return Restored{progress, manifest->precision, manifest->samples_at_once, manifest->stopped_by};
}

Result<std::optional<Restored>> Checkpointer::restore(
    const std::function<void(const std::string&)>& damaged) {
    DP_TRY(prepare_directory());
    DP_TRY(check_resume());
    auto step = newest_before(std::numeric_limits<std::int64_t>::max());
    std::vector<std::int64_t> passed_over;
    while (step && *step) {
        auto restored = restore_from(**step);
        if (restored) {
            // It is whole: where fewer are to stay than before, this makes room on a disk that may be full.
            for (const std::int64_t one : passed_over)
                if (is_first()) set_aside(plan_.directory, one);
            if (is_first()) keep_newest(plan_.directory, plan_.keep);
            return std::move(*restored);
        }
        const Error& problem = restored.error();
        if (problem.fault != Fault::checkpoint) return tl::unexpected(problem);
        passed_over.push_back(**step);
        step = newest_before(**step);
        if (step && !*step) return tl::unexpected(none_is_whole(problem, passed_over.size() > 1));
        if (step && !problem.message.empty())
            damaged(
                fmt::format("{}; going back to {}", problem.message, path_of(**step).filename().string()));
    }
    if (!step) return tl::unexpected(step.error());
    return std::nullopt;
}

// ---- save

Result<void> Checkpointer::save(const Progress& progress, const std::string& stopped_by) {
    auto written = write(progress, stopped_by);
    if (!written && is_first() && claim_->check()) {
        std::error_code ignored;
        fs::remove_all(unfinished_path(plan_.directory, progress.step), ignored);
    }
    return written;
}

Result<void> Checkpointer::write(const Progress& progress, const std::string& stopped_by) {
    const std::int64_t rank = communicator_.rank(), world = communicator_.size();
    const fs::path unfinished = unfinished_path(plan_.directory, progress.step);
    Result<void> made;
    if (is_first()) made = claim_->check();
    if (is_first() && made) {
        std::error_code error;
        fs::remove_all(unfinished, error);
        fs::create_directory(unfinished, error);
        if (error)
            made = fail(Fault::checkpoint,
                        fmt::format("{}: cannot make it: {}", unfinished.string(), error.message()));
    }
    DP_TRY(together(made));

    const auto shard = write_shard(unfinished / shard_name(rank, world), vectors_, rank, world, device_);
    DP_TRY(together(shard ? Result<void>{} : tl::unexpected(shard.error())));
    const auto facts = DP_TRY(gather_of_all_ranks(facts_of(*shard, progress), device_, communicator_));
    Manifest manifest{now_.training, data_source_, progress, {}, {}};
    manifest.precision = now_.precision;
    manifest.samples_at_once = now_.samples_at_once;
    manifest.stopped_by = stopped_by;
    for (const auto& vector : vectors_) manifest.vectors.push_back({vector.name, vector.elements()});
    bool all_finite = true;
    for (std::int64_t one = 0; one < world; ++one) {
        const std::int64_t* of_one = facts.data() + static_cast<std::size_t>(one) * kShardFacts;
        manifest.shards.push_back(shard_of_facts(of_one));
        all_finite &= is_finite(of_one);
    }
    // Each bad one would push a good one out of the directory.
    if (!all_finite)
        return fail(Fault::training,
                    is_first()
                        ? fmt::format("step {}: the loss or the model is NaN or infinite; give a smaller "
                                      "--lr and go on from the checkpoint before this one",
                                      progress.step)
                        : "");
    Result<void> published;
    if (is_first()) {
        published = check_shards_seen(unfinished, manifest);
        if (auto ours = claim_->check(); !ours) published = ours;
        if (published) published = publish(plan_.directory, manifest);
        if (published) keep_newest(plan_.directory, plan_.keep);
    }
    return together(published);
}

}  // namespace dp::trainer
