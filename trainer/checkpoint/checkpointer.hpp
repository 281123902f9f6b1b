// SPDX-License-Identifier: Apache-2.0
//
// Saves and resumes a training, all ranks together. Called by training.cpp. Every rank calls every method,
// which succeeds or fails on all of them alike.
//
// A save: rank 0 makes a hidden directory, each rank writes its shard there, a barrier, then rank 0 adds the
// manifest and the marker DONE and renames the directory. A failure before that leaves the earlier
// checkpoints as they are. Before and after the shards, rank 0 checks that the directory still belongs to
// this training (directory_lock.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/checkpoint/directory_lock.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/plan.hpp"
#include "trainer/checkpoint/shard.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// The contents of a checkpoint besides the vectors.
struct Restored {
    Progress progress;
    std::string precision;         // of the training that wrote it
    std::int64_t samples_at_once;  // by it; 0: it does not say
    std::string stopped_by;        // the signal that it ended with; "": none
};

class Checkpointer {
 public:
    // `now`: of this training; `vectors` are what is saved and restored. Its `now.vectors` need not be set.
    Checkpointer(const CheckpointPlan& plan, Continuation now, std::string data_source,
                 std::vector<Vector> vectors, Device& device, Communicator& communicator);

    // Fills the vectors from the newest checkpoint that is whole and says how far it was; nothing where there
    // is none. What is wrong with a newer one goes to `damaged`, on the rank that saw it. Also sees whether
    // the directory can be written, before anybody has worked for nothing. Faults are Fault::usage: the user
    // gave the wrong directory, or the wrong options for it, or no checkpoint is whole.
    Result<std::optional<Restored>> restore(const std::function<void(const std::string&)>& damaged);

    // The checkpoint is named after the optimizer's steps in `progress`. Fault::checkpoint: it could not be
    // written, and the training may continue without it. Fault::training: it is not worth keeping.
    // Fault::usage: another training owns the directory now. `stopped_by`: as in the manifest.
    Result<void> save(const Progress& progress, const std::string& stopped_by);

    std::filesystem::path path_of(std::int64_t step) const;

 private:
    const CheckpointPlan& plan_;
    Continuation now_;
    std::string data_source_;
    std::vector<Vector> vectors_;
    Device& device_;
    Communicator& communicator_;
    std::unique_ptr<DirectoryLock> claim_;  // rank 0's, of the directory, once it has looked there

    bool is_first() const { return communicator_.rank() == 0; }
    Result<void> together(const Result<void>& mine);
    Result<void> prepare_directory();
    Result<void> check_resume();
    Result<std::optional<std::int64_t>> newest_before(std::int64_t step);
    Result<Manifest> open(std::int64_t step);
    Result<Restored> restore_from(std::int64_t step);
    Result<void> write(const Progress& progress, const std::string& stopped_by);
};

}  // namespace dp::trainer
