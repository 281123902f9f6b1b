// SPDX-License-Identifier: Apache-2.0
//
// Saves and resumes a training. Every rank calls every method, which succeeds or fails on all of them alike.
//
// A save: rank 0 makes a hidden directory, each rank writes its shard there, a barrier, then rank 0 adds the
// manifest and the marker DONE and renames the directory. A failure before that leaves the earlier
// checkpoints as they are. Before and after the shards, rank 0 checks that the directory is still this
// training's (directory_lock.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include "trainer/base/ranks.hpp"
#include "trainer/checkpoint/directory.hpp"
#include "trainer/checkpoint/directory_lock.hpp"
#include "trainer/checkpoint/gathered_numbers.hpp"
#include "trainer/checkpoint/plan.hpp"
#include "trainer/checkpoint/shard.hpp"
#include "trainer/parallel/agreement.hpp"

namespace dp::trainer {

class Checkpointer {
 public:
    // `now`: of this training. `vectors` are saved and restored; `copies`, other parts of these, are only restored. Its
    // `now.vectors` need not be set. `parts`: of the model, which is placed.
    Checkpointer(const CheckpointPlan& plan, Continuation now, std::string data_source,
                 std::vector<PlacedPart> parts, std::vector<Vector> vectors, std::vector<Vector> copies,
                 Device& device, const Ranks& ranks);

    // A line for the user, on one rank.
    using Tell = std::function<void(const std::string&)>;

    // Fills the vectors from the newest whole checkpoint and returns its manifest, with this rank's loss and
    // correct in the progress; nothing if there is none. What is wrong with a newer one goes to `tell`, on
    // the rank that saw it. Also checks that the directory can be written. Faults are Fault::usage.
    Result<std::optional<Manifest>> restore(const Tell& tell);

    // The first part of that: checks that the directory can be written, and tidies it up.
    Result<void> prepare_directory(const Tell& tell);

    // Fault::checkpoint: it could not be written, and the training may continue without it. Fault::training:
    // it is not worth keeping. Fault::usage: another training owns the directory now.
    Result<void> save(const Progress& progress, const std::string& stopped_by);

    // The same in two parts, between which the training goes on: once begin() returns, a thread writes what was copied. Then every rank
    // calls finish(), which waits for it. A training that ends in between leaves the earlier checkpoints as they are.
    Result<void> begin(const Progress& progress);
    Result<void> finish();
    // Whether this rank's thread has still something to write.
    bool is_writing() const { return writing_ != nullptr && !writing_->is_done; }

    std::filesystem::path path_of(std::int64_t step) const { return checkpoint_path(plan_.directory, step); }

 private:
    const CheckpointPlan& plan_;
    Continuation now_;
    std::string data_source_;
    std::vector<PlacedPart> parts_;
    std::vector<Vector> vectors_, copies_;
    Device& device_;
    Communicator& communicator_;               // of the world
    bool takes_losses_;                        // of ranks that divide the model, this one
    std::optional<GatheredNumbers> gathered_;  // where ranks divide the model
    std::unique_ptr<DirectoryLock> claim_;     // rank 0's, of the directory, once it has looked there
    std::set<std::int64_t> damaged_;           // rank 0's: steps that could not be set aside

    // What is written in the background.
    struct Writing {
        Progress progress;
        Result<WrittenShard> shard = WrittenShard{};
        std::atomic<bool> is_done = false;
        std::jthread thread;  // last: it ends before what it uses
    };
    std::vector<float> copied_;  // kept, for the next time
    std::unique_ptr<Writing> writing_;

    bool is_first() const { return communicator_.rank() == 0; }
    Result<void> together(const Result<void>& mine) { return all_or_none(mine, device_, communicator_); }
    Result<void> on_rank_0(const std::function<Result<void>()>& act);
    Result<std::optional<std::int64_t>> newest_before(std::int64_t step);
    Result<Manifest> open(std::int64_t step);
    Result<Manifest> restore_from(std::int64_t step);
    void clear(const std::vector<std::int64_t>& damaged, const Tell& tell);
    Result<void> make_unfinished(std::int64_t step);
    Result<void> write(const Progress& progress, const std::string& stopped_by);
    Result<void> publish_shards(const Progress& progress, const std::string& stopped_by,
                                const Result<WrittenShard>& shard);
    Result<void> cleaned(std::int64_t step, Result<void> written);
};

}  // namespace dp::trainer
