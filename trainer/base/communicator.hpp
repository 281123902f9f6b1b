// SPDX-License-Identifier: Apache-2.0
//
// What the training loop asks of the other ranks. The kinds: a single rank (below), Gloo between CPUs
// (gloo.cpp), memory that the ranks of a node share with Gloo between nodes (node_communicator.cpp), NCCL
// between GPUs (devices/cuda/nccl_communicator.cpp); the tests add ranks that are threads.
#ifndef TRAINER_BASE_COMMUNICATOR_HPP
#define TRAINER_BASE_COMMUNICATOR_HPP

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "trainer/base/node_place.hpp"
#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"

namespace dp::trainer {

enum class Reduction { sum, max };

class Communicator {
 public:
    virtual ~Communicator() = default;
    virtual std::string_view name() const = 0;  // "single", "gloo", "node-memory" or "nccl"
    virtual std::int64_t rank() const = 0;
    virtual std::int64_t size() const = 0;
    // In place, on every rank, in the same order, on tensors of the device that the communicator was made
    // for: f32, f64 or i64. The result has the same bits on every rank.
    virtual Result<void> all_reduce(const Tensor& tensor, Reduction reduction) = 0;

    // A sum of few f64 numbers that is asked for often, also while those of start_sum() go on.
    virtual Result<void> sum_few(const Tensor& tensor) { return all_reduce(tensor, Reduction::sum); }

    // In place, of any type: a rank brings its part of the tensor (partition.hpp) and then has those of all.
    // Every rank calls, in the same order as the others; no sum goes on meanwhile.
    virtual Result<void> all_gather(const Tensor& tensor) = 0;

    // The same as a sum, but it may go on while the caller computes: nobody touches the tensor before
    // finish_sums(). Every rank starts the same ones in the same order, also among what it reduces between.
    virtual Result<void> start_sum(const Tensor& tensor) { return all_reduce(tensor, Reduction::sum); }
    // The same for several, together where that is cheaper than one after the other.
    virtual Result<void> start_sums(std::span<const Tensor> tensors) {
        for (const Tensor& tensor : tensors)
            if (auto started = start_sum(tensor); !started) return started;
        return {};
    }
    // Waits for all that were started (what the device does next comes after them).
    virtual Result<void> finish_sums() { return {}; }
    // Where the sum of a tensor is then: in itself, or, where ranks of a node share memory, in one for all of
    // them, and what is in the tensor means nothing.
    virtual Tensor sum_of(const Tensor& tensor) { return tensor; }

    // Where the ranks of each node have one copy of what Device::make_of_node() makes, and of sums: this
    // rank's share. On all ranks, or on none.
    virtual std::optional<NodeShare> node_share() const { return std::nullopt; }
    // What ranks of this node have written there is seen by all of them. Every rank calls.
    virtual Result<void> meet_on_node() { return {}; }
};

class SingleCommunicator final : public Communicator {
 public:
    std::string_view name() const override { return "single"; }
    std::int64_t rank() const override { return 0; }
    std::int64_t size() const override { return 1; }
    Result<void> all_reduce(const Tensor&, Reduction) override { return {}; }
    Result<void> all_gather(const Tensor&) override { return {}; }
};

}  // namespace dp::trainer

#endif
