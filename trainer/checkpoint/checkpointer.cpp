// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/checkpointer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>

#include "base/host_name.hpp"
#include "trainer/base/durable.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// What rank 0 must know about each rank's shard, and the same as numbers that ranks can exchange.
struct ShardFacts {
    Sha256::Digest digest;
    double loss, correct;
    std::int64_t is_finite;
};
using Numbers = std::array<std::int64_t, sizeof(ShardFacts) / sizeof(std::int64_t)>;

// Checks that rank 0 sees all shards, at their full length.
Result<void> check_shards_seen(const fs::path& unfinished, const Manifest& manifest) {
    for (std::int64_t rank = 0; rank < manifest.world(); ++rank) {
        std::error_code error;
        const auto bytes = fs::file_size(unfinished / shard_name(rank, manifest.world()), error);
        if (error ||
            static_cast<std::int64_t>(bytes) != shard_bytes(manifest.vectors, rank, manifest.world()))
            return fail(Fault::checkpoint,
                        "{}: the shard of rank {} is not seen whole by rank 0: --checkpoint-dir must be on a "
                        "file system that all nodes share",
                        unfinished.string(), rank);
    }
    return {};
}

}  // namespace

Checkpointer::Checkpointer(const CheckpointPlan& plan, Continuation now, std::string data_source,
                           std::vector<PlacedPart> parts, std::vector<Vector> vectors,
                           std::vector<Vector> copies, Device& device, const Ranks& ranks)
    : plan_(plan),
      now_(std::move(now)),
      data_source_(std::move(data_source)),
      parts_(std::move(parts)),
      vectors_(std::move(vectors)),
      copies_(std::move(copies)),
      device_(device),
      communicator_(ranks.world),
      takes_losses_(ranks.counts() && ranks.data.rank() == 0) {
    if (ranks.divide_model()) gathered_.emplace(parts_, ranks.data.rank() == 0, device_, communicator_);
    for (const auto& vector : vectors_) now_.vectors.push_back(vector.name);
}

Result<void> Checkpointer::on_rank_0(const std::function<Result<void>()>& act) {
    return together(is_first() ? act() : Result<void>());
}

// ---- restore

Result<void> Checkpointer::prepare_directory(const Tell& tell) {
    const fs::path& directory = plan_.directory;
    const auto claim = [&]() -> Result<void> {
        claim_ = DP_TRY(DirectoryLock::make(directory, plan_.succeeds));
        for (const auto& line : tidy(directory)) tell(line);
        return {};
    };
    DP_TRY(on_rank_0(claim));
    const fs::path here = presence_file(directory, communicator_.rank());
    Result<void> written = write_durably(here, "\n");
    std::error_code error;
    if (!written)
        written = fail(Fault::usage, "--checkpoint-dir {}: {}", directory.string(),
                       fs::is_directory(directory, error)
                           ? written.error().message
                           : fmt::format("not there on {}; it must be on a file system that all nodes share",
                                         host_name()));
    auto done = together(written);
    if (done) done = on_rank_0([&] { return check_presence(directory, communicator_.size()); });
    fs::remove(here, error);
    if (!done) (void)together({});  // so that rank 0 finds the directory empty, if it has made it
    return done;
}

// As rank 0 sees it.
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
        return fail(Fault::usage, "the checkpoint {} {}; or begin anew in another --checkpoint-dir",
                    path_of(step).string(), fits.error().message);
    return manifest;
}

// Fault::checkpoint: it is damaged.
Result<Manifest> Checkpointer::restore_from(std::int64_t step) {
    const fs::path path = path_of(step);
    auto manifest = open(step);
    DP_TRY(together(manifest ? Result<void>{} : tl::unexpected(manifest.error())));
    // The ranks divide the shards among themselves, whatever the number of ranks that wrote them.
    const std::int64_t rank = communicator_.rank(), world = communicator_.size();
    Result<void> sound;
    for (std::int64_t theirs = rank; sound && theirs < manifest->world(); theirs += world)
        sound = verify_shard(path, *manifest, theirs);
    // Where ranks divide the model, the losses of some do not count: one gets all whose losses do.
    for (std::int64_t theirs = 0; theirs < manifest->world(); ++theirs) {
        if (gathered_ ? !takes_losses_ : theirs % world != rank) continue;
        manifest->progress.loss += manifest->shards[static_cast<std::size_t>(theirs)].loss;
        manifest->progress.correct += manifest->shards[static_cast<std::size_t>(theirs)].correct;
    }
    DP_TRY(together(sound));
    const auto read = [&](const std::vector<Vector>& vectors) {
        return read_vectors(path, *manifest, parts_, vectors, device_);
    };
    DP_TRY(together(read(vectors_).and_then([&] { return read(copies_); })));
    return manifest;
}

Result<std::optional<Manifest>> Checkpointer::restore(const Tell& tell) {
    DP_TRY(prepare_directory(tell));
    auto step = DP_TRY(newest_before(std::numeric_limits<std::int64_t>::max()));
    if (plan_.resume == (step ? Resume::never : Resume::must)) {
        const char* const why =
            step ? "there are checkpoints, and --resume=never asks for none; give another directory"
                 : "no checkpoint there, and --resume=must asks for one";
        return is_first() ? fail(Fault::usage, "--checkpoint-dir {}: {}", plan_.directory.string(), why)
                          : fail(Fault::usage, "");
    }
    std::vector<std::int64_t> damaged;
    while (step) {
        auto restored = restore_from(*step);
        if (restored) {
            if (is_first()) clear(damaged, tell);
            return std::move(*restored);
        }
        const Error& problem = restored.error();
        if (problem.fault != Fault::checkpoint) return tl::unexpected(problem);
        damaged.push_back(*step);
        const auto older = DP_TRY(newest_before(*step));
        if (!older) return tl::unexpected(none_is_whole(problem, damaged.size() > 1));
        if (!problem.message.empty())
            tell(fmt::format("{}; going back to {}", problem.message, path_of(*older).filename().string()));
        step = older;
    }
    return std::nullopt;
}

// After a whole one is found: sets the damaged ones aside, and makes room on a disk that may be full.
void Checkpointer::clear(const std::vector<std::int64_t>& damaged, const Tell& tell) {
    for (const std::int64_t step : damaged) {
        const auto done = set_aside(plan_.directory, step);
        if (done) continue;
        damaged_.insert(step);
        tell(done.error().message);
    }
    keep_newest(plan_.directory, plan_.keep, damaged_);
}

// ---- save

Result<void> Checkpointer::save(const Progress& progress, const std::string& stopped_by) {
    return cleaned(progress.step, write(progress, stopped_by));
}

Result<void> Checkpointer::begin(const Progress& progress) {
    const std::int64_t rank = communicator_.rank(), world = communicator_.size();
    const auto copy = [&]() -> Result<void> {
        DP_TRY(make_unfinished(progress.step));
        // Now: should this training be over soon, another one may make a file of this name.
        auto out =
            DurableFile::create(unfinished_path(plan_.directory, progress.step) / shard_name(rank, world));
        const auto copied =
            copy_shard(vectors_, rank, world, device_, gathered_ ? &*gathered_ : nullptr, copied_);
        const auto problem = [&]() -> Result<void> {
            DP_TRY(copied);
            return out ? Result<void>() : tl::unexpected(out.error());
        };
        DP_TRY(together(problem()));
        writing_ = std::make_unique<Writing>();
        writing_->progress = progress;
        const auto write = [this, to = std::make_shared<DurableFile>(std::move(*out)),
                            &writing = *writing_](const std::stop_token& stop) {
            writing.shard = write_copied_shard(std::move(*to), copied_, stop);
            writing.is_done = true;
            writing.is_done.notify_all();
        };
        try {
            writing_->thread = std::jthread(write);
        } catch (const std::system_error&) {  // no more threads: the training waits for it this time
            write({});
        }
        return {};
    };
    return cleaned(progress.step, copy());
}

Result<void> Checkpointer::finish() {
    // Not in join(), which --dp-hang-timeout takes for work: a file system that does not answer is to be named.
    writing_->is_done.wait(false);
    if (writing_->thread.joinable()) writing_->thread.join();
    const auto written = std::move(writing_);
    return cleaned(written->progress.step, publish_shards(written->progress, "", written->shard));
}

// Removes what could not be finished.
Result<void> Checkpointer::cleaned(std::int64_t step, Result<void> written) {
    if (!written && is_first() && claim_->check()) {
        std::error_code ignored;
        fs::remove_all(unfinished_path(plan_.directory, step), ignored);
    }
    return written;
}

Result<void> Checkpointer::make_unfinished(std::int64_t step) {
    const fs::path unfinished = unfinished_path(plan_.directory, step);
    const auto make = [&]() -> Result<void> {
        DP_TRY(claim_->check());
        std::error_code error;
        fs::remove_all(unfinished, error);
        fs::create_directory(unfinished, error);
        if (!error) return {};
        return fail(Fault::checkpoint, "{}: cannot make it: {}", unfinished.string(), error.message());
    };
    return on_rank_0(make);
}

Result<void> Checkpointer::write(const Progress& progress, const std::string& stopped_by) {
    const std::int64_t rank = communicator_.rank(), world = communicator_.size();
    DP_TRY(make_unfinished(progress.step));
    return publish_shards(
        progress, stopped_by,
        write_shard(unfinished_path(plan_.directory, progress.step) / shard_name(rank, world), vectors_, rank,
                    world, device_, gathered_ ? &*gathered_ : nullptr));
}

Result<void> Checkpointer::publish_shards(const Progress& progress, const std::string& stopped_by,
                                          const Result<WrittenShard>& shard) {
    const std::int64_t world = communicator_.size();
    const fs::path unfinished = unfinished_path(plan_.directory, progress.step);
    DP_TRY(together(shard ? Result<void>{} : tl::unexpected(shard.error())));
    const ShardFacts mine{shard->digest, progress.loss, progress.correct, shard->is_finite ? 1 : 0};
    const auto numbers = DP_TRY(gather_of_all_ranks(std::bit_cast<Numbers>(mine), device_, communicator_));
    Manifest manifest{now_.training, data_source_, progress, {}, {}};
    manifest.precision = now_.precision;
    manifest.samples_at_once = now_.samples_at_once;
    manifest.stopped_by = stopped_by;
    for (const auto& vector : vectors_) manifest.vectors.push_back({vector.name, vector.elements()});
    std::vector<ShardFacts> facts(static_cast<std::size_t>(world));
    std::memcpy(facts.data(), numbers.data(), facts.size() * sizeof(ShardFacts));
    bool all_finite = true;
    for (const ShardFacts& one : facts) {
        manifest.shards.push_back({hex_of(one.digest), one.loss, one.correct});
        all_finite &= one.is_finite != 0 && std::isfinite(one.loss);
    }
    // Each bad one would push a good one out of the directory.
    if (!all_finite)
        return fail(Fault::training,
                    is_first() ? fmt::format("step {}: the loss or the model is NaN or infinite; give a "
                                             "smaller --lr and resume from the checkpoint before this one",
                                             progress.step)
                               : "");
    const auto finish = [&]() -> Result<void> {
        DP_TRY(claim_->check());
        DP_TRY(check_shards_seen(unfinished, manifest));
        DP_TRY(publish(plan_.directory, manifest));
        keep_newest(plan_.directory, plan_.keep, damaged_);
        return {};
    };
    return on_rank_0(finish);
}

}  // namespace dp::trainer
