// SPDX-License-Identifier: Apache-2.0
//
// Causal attention in bf16 by cuDNN's fused engines: a graph of operations of cuDNN's back-end API, and the plan that an engine
// makes of it. The tensors lie as the trainer has them (device.hpp), so nothing is copied. For cudnn_attention.cpp, and for a test
// that has cuDNN make plans for GPUs that are not there (tests/unit/trainer/cudnn_plans).
//
// The engines recognize patterns of operations. These are the ones of NVIDIA's cudnn-frontend 1.23 (node/
// scaled_dot_product_flash_attention.h). Of its two ways to the gradient of queries this is the one it takes where deterministic
// results are asked for: a product of the scores' gradients, which cuDNN keeps in its workspace. The other one adds up in fp32, in
// the order in which blocks come to it.
#pragma once

#include <cudnn.h>

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/failure.hpp"

namespace dp::trainer {

// Of heads of so many numbers, in sequences of so many tokens.
struct AttentionShape {
    std::int64_t sequences, heads, sequence, size;
    auto operator<=>(const AttentionShape&) const = default;
};
enum class AttentionPass : std::uint8_t { forward, backward };

// Where a plan's tensors begin, by cuDNN's unique ids for them; null: the pass has no such tensor.
enum AttentionTensor : std::uint8_t {
    kQueries,
    kKeys,
    kValues,
    kY,
    kSums,  // of each query: the logarithm of the sum of its scores' exponentials, in f32
    kDY,    // the gradient of y, and those of the first three
    kDQueries,
    kDKeys,
    kDValues,
    kProducts,  // of each query: Σ dy y, in f32, for the plan alone
    kAttentionTensors
};
using AttentionPlaces = std::array<void*, kAttentionTensors>;

// For the GPU of the handle; without one, for the GPU that cuDNN's JSON of device properties describes.
struct CudnnGpu {
    cudnnHandle_t handle = nullptr;
    std::string properties;
};

struct EndCudnnDescriptor {
    void operator()(void* descriptor) const;
};
using CudnnDescriptor = std::unique_ptr<void, EndCudnnDescriptor>;

class AttentionPlan {
 public:
    // By the engine that cuDNN's heuristics have first, of those whose plan needs no more than so many bytes of workspace.
    static Try<AttentionPlan> make(const AttentionShape& shape, AttentionPass pass, const CudnnGpu& gpu,
                                   std::int64_t most_workspace);

    std::int64_t workspace() const { return workspace_; }  // bytes
    std::int64_t engine() const { return engine_; }        // its number in cuDNN, for this graph
    // Queues it on the handle's stream.
    cudnnStatus_t run(cudnnHandle_t handle, const AttentionPlaces& places, void* workspace) const;

 private:
    std::vector<CudnnDescriptor> made_;  // all that the plan is made of, which comes last
    std::int64_t workspace_ = 0, engine_ = -1;
    float scale_ = 0;
    bool is_backward_ = false;

    AttentionPlan() = default;
};

}  // namespace dp::trainer
