// SPDX-License-Identifier: Apache-2.0
//
// Saves a training and goes on from where one was saved, all ranks together. training.cpp calls it; every
// method is called by every rank, and succeeds or fails on all of them alike.
//
// A save: rank 0 makes a hidden directory, each rank writes its shard there, all wait for each other, rank 0
// adds the manifest and the marker DONE and renames the directory. Whatever breaks off before that leaves
// the checkpoints that were there. Before and after the shards rank 0 looks whether the directory is still
// this training's (claim.hpp).
#ifndef TRAINER_CHECKPOINT_CHECKPOINTER_HPP
#define TRAINER_CHECKPOINT_CHECKPOINTER_HPP

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/checkpoint/claim.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/plan.hpp"
#include "trainer/checkpoint/shard.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// What was found in a checkpoint, besides the vectors.
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

    // Looks for a checkpoint, fills the vectors from it and says how far it was; nothing where there is none.
    // Also sees whether the directory can be written, before anybody has worked for nothing. Faults are
    // Fault::usage: the user gave the wrong directory, or the wrong options for it.
    Result<std::optional<Restored>> restore();

    // The optimizer's steps in `progress` are what the checkpoint is called. Fault::checkpoint: it could not
    // be written, and the training may go on without it. Fault::training: it is not worth to be kept.
    // Fault::usage: another training has the directory now. `stopped_by`: as in the manifest.
    Result<void> save(const Progress& progress, const std::string& stopped_by);

    std::filesystem::path path_of(std::int64_t step) const;

 private:
    const CheckpointPlan& plan_;
    Continuation now_;
    std::string data_source_;
    std::vector<Vector> vectors_;
    Device& device_;
    Communicator& communicator_;
    std::unique_ptr<Claim> claim_;  // rank 0's, of the directory, once it has looked there

    bool is_first() const { return communicator_.rank() == 0; }
    Result<void> together(const Result<void>& mine);
    Result<void> prepare_directory();
    Result<std::optional<std::int64_t>> newest();
    Result<Manifest> open(std::int64_t step);
    Result<void> write(const Progress& progress, const std::string& stopped_by);
};

}  // namespace dp::trainer

#endif
