// SPDX-License-Identifier: Apache-2.0
//
// Attention in bf16 by cuDNN (attention_graph.hpp) instead of by our kernels, where `trainer compile` found that it is faster,
// comes to numbers close to ours, and gives the same bits each time. Without a choice, with --deterministic (for which compile
// chooses nothing), and for what cuDNN is not asked for here (dropout, documents, heads that are no multiple of 8 numbers) our
// kernels do it.
#pragma once

#include <cudnn.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trainer/devices/cuda/attention_graph.hpp"
#include "trainer/devices/cuda/cuda_device.hpp"
#include "trainer/devices/cuda/stream_timer.hpp"

namespace dp::trainer {

class CudnnAttention {
 public:
    // The device owns this. cuDNN is opened when it is first chosen, or tried.
    explicit CudnnAttention(CudaDevice& device) : device_(device) {}
    ~CudnnAttention();
    CudnnAttention(const CudnnAttention&) = delete;
    CudnnAttention& operator=(const CudnnAttention&) = delete;

    struct Tensors {
        In qkv, y, sums, dy, d_qkv;  // the last two are empty in the forward pass
    };
    // Queues it, and tells whether it did; else our kernels are to. `ours` queues those, to compare and to time both.
    bool run(const Attention& a, AttentionPass pass, const Tensors& tensors,
             const std::function<void()>& ours);

 private:
    struct Planned {
        AttentionShape shape;  // of a part of the sequences
        std::optional<AttentionPlan> plan;
        std::string why_not;
    };
    // Where all tensors begin.
    struct Places {
        std::byte *qkv, *y, *sums, *dy, *d_qkv;
    };
    struct Call;

    CudaDevice& device_;
    cudnnHandle_t handle_ = nullptr;
    std::map<std::pair<AttentionShape, AttentionPass>, Planned> plans_;

    Try<void> open();
    const Planned& planned(const AttentionShape& shape, AttentionPass pass);
    Try<void> plan(const AttentionShape& shape, AttentionPass pass, Planned& planned);
    cudnnStatus_t queue(const AttentionShape& shape, const Planned& planned, AttentionPass pass,
                        const Places& places);
    // What is to be stored; measured.
    std::string choice(const AttentionShape& shape, AttentionPass pass, const Tensors& tensors,
                       const Places& places, const std::function<void()>& ours);
    // What cuDNN's way and ours take. A failure says why cuDNN's cannot be taken.
    Try<Times> compare(const AttentionShape& shape, AttentionPass pass, const Tensors& tensors,
                       const Places& places, const std::function<void()>& ours);
};

}  // namespace dp::trainer
