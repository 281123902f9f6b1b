// SPDX-License-Identifier: Apache-2.0
//
// Sums of bf16 numbers in host memory, over a communicator that adds f32. gloo.cpp and node_communicator.cpp have one.
//
// Such sums are of activations and their gradients, where ranks divide a layer: each has rounded its part to bf16, as Megatron-LM's
// ranks have. Here they are widened and added in f32, and the sum is rounded once, however many ranks there are and wherever they lie.
// On GPUs NCCL gets the bf16 numbers, as from Megatron-LM, for half the bytes, and may round at each rank. The gradients of parameters,
// which ranks with other samples sum, are f32 in any precision.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "trainer/base/bfloat16.hpp"
#include "trainer/base/communicator.hpp"
#include "trainer/base/partition.hpp"

namespace dp::trainer {

class Bf16Sums {
 public:
    // As Communicator::all_reduce(), which `ranks` does of f32.
    Result<void> all_reduce(Communicator& ranks, const Tensor& tensor, Reduction reduction) {
        DP_TRY(ranks.all_reduce(widened(tensor), reduction));
        narrow(tensor, {0, tensor.elements()});
        return {};
    }
    // As Communicator::reduce_scatter(), too.
    Result<void> reduce_scatter(Communicator& ranks, const Tensor& tensor) {
        DP_TRY(ranks.reduce_scatter(widened(tensor)));
        narrow(tensor, shard_of(tensor.elements(), ranks.rank(), ranks.size()));
        return {};
    }

 private:
    std::vector<float> wide_;  // of the largest tensor so far

    Tensor widened(const Tensor& tensor) {
        const auto count = static_cast<std::size_t>(tensor.elements());
        if (wide_.size() < count) wide_.resize(count);
        const auto* const numbers = tensor.data<Bfloat16>();
        std::transform(numbers, numbers + count, wide_.begin(), to_float);
        return {std::shared_ptr<void>(wide_.data(), [](void*) {}), Type::f32, {tensor.elements()}};
    }
    void narrow(const Tensor& tensor, const Shard& part) const {
        const float* const from = wide_.data() + part.first;
        std::transform(from, from + part.count, tensor.data<Bfloat16>() + part.first, to_bfloat16);
    }
};

}  // namespace dp::trainer
