// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint's manifest.json, and whether a training can resume from it. Pure.
//
// A checkpoint is a directory:
//
//   step-000000351/
//     rank-00000-of-00002.f32   shards: numbers of 32 bits, little-endian, nothing else
//     rank-00001-of-00002.f32
//     manifest.json             everything else; written when the shards are complete
//     DONE                      the SHA-256 of manifest.json; a directory without it is no checkpoint
//
// Numbers belong to vectors, which "vectors" lists by name and length: "values" (the parameters), the
// optimizer's state ("velocity", or "m" and "v"; with --ema-decay "ema", an average of the values), and "buffers", a model's other state. Of a vector of n
// numbers, the shard of rank r of w has those from n * r / w to n * (r + 1) / w (rounded down), vector after
// vector. "parameters" says where each parameter begins in "values" and in the optimizer's vectors; for
// "buffers" the list of that name does. A parameter with "frozen" has no numbers in the optimizer's vectors, which end before it;
// a checkpoint with such has version 2, any other version 1. "version" rises when a reader of the older format would go wrong.
#pragma once

#include <map>
#include <optional>
#include <string_view>

#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"

namespace dp::trainer {

inline constexpr std::int64_t kCheckpointVersion = 2;

// Where the numbers of a parameter or buffer are in a vector.
struct Place {
    std::string name;
    Shape shape;
    std::int64_t first;
    bool is_frozen = false;  // a parameter that steps leave alone
};

// What must be equal for a training to resume from another: what the numbers mean, and which samples come
// next. People change the rest on purpose: learning rate, dropout, sharding of the optimizer.
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

// Of the tests of a training with --early-stopping, the one with the smallest loss, and those after it.
struct BestTest {
    double loss = 0;
    std::int64_t step = 0;       // after which it was
    std::int64_t worse = 0;      // tests since then
    std::int64_t last_step = 0;  // after which the last of them was
};

// A training's progress.
struct Progress {
    std::int64_t step = 0;              // optimizer steps, skipped ones included
    std::int64_t skipped = 0;           // of these
    std::int64_t skipped_in_epoch = 0;  // of the epoch that `step` is in
    std::int64_t bad_in_a_row = 0;      // consecutive skipped steps at the end
    double loss = 0, correct = 0;       // this rank's sums over the epoch so far
    std::optional<BestTest> best_test = {};
};

struct StoredVector {
    std::string name;
    std::int64_t elements;
};

// A rank's shard, as the manifest describes it.
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
    // The rest is for messages. The numbers are f32 in any precision.
    std::string precision = "fp32";
    // Samples that all ranks processed at once, of models that use statistics of the batch; else 0.
    std::int64_t samples_at_once = 0;
    // The signal that stopped it, "SIGTERM"; "": none. Slurm ends srun, too, and loses what ranks print last.
    std::string stopped_by = {};

    std::int64_t world() const { return static_cast<std::int64_t>(shards.size()); }
};

std::string text_of(const Manifest& manifest);
// The error says only what is wrong. Fault::checkpoint: damage; Fault::usage: another trainer's version.
Result<Manifest> manifest_of(std::string_view text);

// The training that resumes.
struct Continuation {
    TrainingIdentity training;
    std::vector<std::string> vectors;  // the names of those that it needs
    std::int64_t total_steps;
    std::int64_t world, batch, accumulate;  // for the advice
    std::string precision = "fp32";         // this and the next are for its own manifests
    std::int64_t samples_at_once = 0;
};

// The error says what does not fit, and what to give instead.
Result<void> check_fits(const Manifest& manifest, const Continuation& now);

}  // namespace dp::trainer
