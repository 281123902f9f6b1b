// SPDX-License-Identifier: Apache-2.0
//
// What a checkpoint says about itself, its manifest.json, and whether a training can go on from it. Pure.
//
// A checkpoint is a directory:
//
//   step-000000351/
//     rank-00000-of-00002.f32   shards: numbers of 32 bits, little-endian, nothing else
//     rank-00001-of-00002.f32
//     manifest.json             all that is not such a number; written when the shards are complete
//     DONE                      the SHA-256 of manifest.json; a directory without it is no checkpoint
//
// The numbers belong to vectors, which "vectors" lists by name and length: "values" (the parameters), the
// optimizer's state ("velocity", or "m" and "v"), and "buffers", what else a model keeps. Of a vector of n
// numbers the shard of rank r of w has those from n * r / w to n * (r + 1) / w (rounded down), vector after
// vector. "parameters" says where each parameter begins in "values"; so do its numbers in the optimizer's
// vectors. For "buffers" the list of that name does. "version" rises when a reader of the older format would
// go wrong.
#ifndef TRAINER_CHECKPOINT_MANIFEST_HPP
#define TRAINER_CHECKPOINT_MANIFEST_HPP

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"

namespace dp::trainer {

inline constexpr std::int64_t kCheckpointVersion = 1;

// Where the numbers of a parameter or buffer are in a vector.
struct Place {
    std::string name;
    Shape shape;
    std::int64_t first;
};

// What must be the same for one training to go on where another ended: what the numbers mean, and which
// samples come next. How it is to go on from there may change, as people do it on purpose: learning rate,
// weight decay, the optimizer's constants, dropout, and whether the optimizer's state is sharded.
struct TrainingIdentity {
    std::string model;
    std::vector<Place> parameters;
    std::vector<Place> buffers;
    std::string optimizer;
    std::uint64_t seed = 0;
    std::int64_t samples = 0;      // of the training set
    std::string data_fingerprint;  // fingerprint_of() them
    std::int64_t global_batch = 0;
    std::map<std::string, std::int64_t> shape;  // Model::shape()
};

// How far a training is.
struct Progress {
    std::int64_t step = 0;              // optimizer steps, skipped ones included
    std::int64_t skipped = 0;           // of these
    std::int64_t skipped_in_epoch = 0;  // of the epoch that `step` is in
    std::int64_t bad_in_a_row = 0;      // the last so many steps were skipped
    // This rank's, over the samples of the epoch so far.
    double loss = 0, correct = 0;
};

struct StoredVector {
    std::string name;
    std::int64_t elements;
};

// What the manifest says of the shard of a rank.
struct StoredShard {
    std::string sha256;
    double loss, correct;  // the rank's, see Progress
};

struct Manifest {
    TrainingIdentity training;
    std::string data_source;  // for people
    Progress progress;        // without loss and correct: those are the shards'
    std::vector<StoredVector> vectors;
    std::vector<StoredShard> shards;  // by rank
    // Of the training, for people: the numbers are f32 in any, and a training in another goes on from them.
    std::string precision = "fp32";
    // Of a model that looks at whole batches, for people: samples that all ranks together took at once; else
    // 0.
    std::int64_t samples_at_once = 0;
    // The signal that the training ended with, "SIGTERM"; "": with none. For people, too: where Slurm ends
    // srun together with the ranks, nobody hears what these say.
    std::string stopped_by = {};

    std::int64_t world() const { return static_cast<std::int64_t>(shards.size()); }
};

std::string text_of(const Manifest& manifest);
// The error says what is wrong with the text, and no more.
Result<Manifest> manifest_of(std::string_view text);

// What the ranks of now will do with a checkpoint.
struct Continuation {
    TrainingIdentity training;
    std::vector<std::string> vectors;  // that it needs
    std::int64_t total_steps;
    std::int64_t world, batch, accumulate;  // for the advice
    std::string precision = "fp32";         // this and the next for the manifest
    std::int64_t samples_at_once = 0;
};

// An error says what does not fit, and what to give instead.
Result<void> check_fits(const Manifest& manifest, const Continuation& now);

}  // namespace dp::trainer

#endif
