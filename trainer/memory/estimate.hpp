// SPDX-License-Identifier: Apache-2.0
//
// Estimates the memory that a rank needs on its device, by part, before anything is allocated, and gives
// advice if it is too much. Pure, by what training/ allocates; memory_test.cpp compares.
#pragma once

#include <functional>
#include <memory>

#include "trainer/models/model.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

// In bytes.
struct MemoryNeeds {
    std::int64_t parameters = 0;   // and running statistics; in bf16 also the copy that a model works with
    std::int64_t gradients = 0;    // and their sum, where batches are accumulated or added in order
    std::int64_t optimizer = 0;    // its state; of the rank with the largest part where that is sharded
    std::int64_t activations = 0;  // of the larger of a batch and what is tested at a time
    // In the layouts and the precision that the device computes in, for the time of an operation.
    std::int64_t copies = 0;
    std::int64_t data = 0;        // the samples, their order, and the batches that they are gathered into
    std::int64_t checkpoint = 0;  // with --async-save on CPUs, what is written beside the training
    // What the ranks of a node share, and each counts a part of; for messages.
    std::string_view shared = {};

    std::int64_t total() const {
        return parameters + gradients + optimizer + activations + copies + data + checkpoint;
    }
};

// A training whose memory is estimated. The model need not be placed.
struct MemoryCase {
    const Model& model;
    const Settings& settings;
    const Dataset* data;  // null where it is not known: then it is not counted
    std::int64_t world;
    const Device* device = nullptr;  // null where it is not known: then its copies are not counted
    std::int64_t sharing = 1;        // ranks of a node that share what is the same on all (NodeShare::fewest)
    const Model* recomputing = nullptr;  // the same with --recompute; null where that is no choice
    // Makes all stages of the pipeline with --pipeline-split=even; none where that is no choice.
    std::function<std::vector<std::unique_ptr<Model>>()> evenly = {};
};

MemoryNeeds estimate_memory(const MemoryCase& the_case);
// The bytes that sharing saves a rank.
std::int64_t saved_by_sharing(const MemoryCase& the_case);

// "64.2 MiB": in the largest unit that gives at least one.
std::string size_text(std::int64_t bytes);

// "61.3 MiB (parameters 0.9 MiB, gradients 0.9 MiB, ...; the ranks of a node share parameters)"
std::string needs_text(const MemoryNeeds& needs);

// The continuation of "give a smaller --batch-size: ": the one that fits `available` bytes, the one that with
// --accumulate makes the same global batch, and whether --shard-optimizer, --recompute or
// --pipeline-split=even would do.
std::string batch_advice(const MemoryCase& the_case, std::int64_t available);

// The message if a rank needs more than its device has; nullopt if it fits. `name`: the model's.
std::optional<std::string> memory_problem(std::string_view name, const MemoryCase& the_case,
                                          std::string_view device, std::int64_t available);

}  // namespace dp::trainer
