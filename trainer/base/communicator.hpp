// SPDX-License-Identifier: Apache-2.0
//
// The collectives of the training loop: of a single rank (below), with Gloo (gloo.cpp), in a node's memory
// (node_communicator.cpp), with NCCL (devices/cuda/nccl_communicator.cpp); tests have ranks that are threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "trainer/base/node_place.hpp"
#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"

namespace dp::trainer {

enum class Reduction { sum, max };

// Messages between two ranks overtake those of the other lane: in a pipeline whose ends meet two ranks send each other activations and
// gradients both ways.
enum class Lane { activations, gradients };

// Calls `act` with a number of this type, if it is one that can be added as it is (bf16: parallel/bf16_sums.hpp).
template <typename Act>
Result<void> with_number_of(Type type, const Act& act) {
    if (type == Type::f32) return act(float{});
    if (type == Type::f64) return act(double{});
    if (type == Type::i64) return act(std::int64_t{});
    return fail(Fault::world, "no all-reduce for tensors of this type");
}

class Communicator {
 public:
    virtual ~Communicator() = default;
    virtual std::string_view name() const = 0;  // "single", "gloo", "node-memory" or "nccl"
    virtual std::int64_t rank() const = 0;
    virtual std::int64_t size() const = 0;
    // In place, of f32, f64, i64 or bf16. Every rank calls, in the same order. The result has the same bits on all.
    virtual Result<void> all_reduce(const Tensor& tensor, Reduction reduction) = 0;

    // A sum of few f64 numbers, needed often, also while asynchronous sums are in progress.
    virtual Result<void> small_all_reduce(const Tensor& tensor) { return all_reduce(tensor, Reduction::sum); }

    // In place, of any type: each rank contributes its part of the tensor (partition.hpp) and gets
    // everybody's. Every rank calls, in the same order; no asynchronous sum may be in progress.
    virtual Result<void> all_gather(const Tensor& tensor) = 0;

    // In place, of f32 or bf16: each rank gets its part (partition.hpp) of the sum, where it is in the tensor; the rest of it then has any
    // numbers. Every rank calls, in the same order; no asynchronous sum may be in progress.
    virtual Result<void> reduce_scatter(const Tensor& tensor) { return all_reduce(tensor, Reduction::sum); }

    // Gives everybody the root's numbers, of any type: they are then in result_of(tensor), until a node_barrier(). Every
    // rank calls, in the same order; no asynchronous sum may be in progress.
    virtual Result<void> broadcast(const Tensor& tensor, std::int64_t root) = 0;

    // An asynchronous sum, in host memory not of bf16: nobody touches the tensor before wait_all_reduces(). Every rank starts the same
    // sums in the same order, also relative to its other collectives.
    virtual Result<void> start_all_reduce(const Tensor& tensor) { return all_reduce(tensor, Reduction::sum); }
    // The same for several tensors, together if that is cheaper.
    virtual Result<void> start_all_reduces(std::span<const Tensor> tensors) {
        for (const Tensor& tensor : tensors) DP_TRY(start_all_reduce(tensor));
        return {};
    }

    // Whether it can add in the order of the ranks; the same on all.
    virtual bool adds_in_order() const { return false; }
    // An asynchronous sum like start_all_reduces(), whose bits do not depend on how many ranks share the work: adds the
    // tensors of rank 0, then those of rank 1, and so on, to `sums`, of the same shapes, which then are the same on all
    // ranks. They are from Device::make_of_node(), the tensors from make_to_sum(). f32.
    virtual Result<void> start_adding(std::span<const Tensor> /*tensors*/, std::span<const Tensor> /*sums*/) {
        return fail(Fault::world, "no sums in the order of the ranks here");
    }

    // Waits for all of these (what the device does next comes after them).
    virtual Result<void> wait_all_reduces() { return {}; }
    // How long asynchronous sums have been in progress so far, beside the caller or while it waited; nullopt where that is not known.
    virtual std::optional<std::int64_t> background_nanoseconds() const { return std::nullopt; }
    // Where the sum, or what was broadcast, then is: there, or in a tensor that the node's ranks share, with the original undefined.
    virtual Tensor result_of(const Tensor& tensor) { return tensor; }

    // ---- between two ranks: messages of a lane arrive in the order in which they were begun. Where there is no such thing, an error.
    // Begins to send: nobody writes to the tensor before wait_send(). May wait while two messages of the lane are on their way there.
    virtual Result<void> start_send(const Tensor& /*tensor*/, std::int64_t /*to*/, Lane /*lane*/) {
        return fail(Fault::world, "no messages between two ranks here");
    }
    // Until what was begun to be sent from this tensor's memory, if anything, is on its way.
    virtual Result<void> wait_send(const Tensor& /*tensor*/) { return {}; }
    // Waits for a message of this size and type, in the tensor.
    virtual Result<void> receive(const Tensor& /*tensor*/, std::int64_t /*from*/, Lane /*lane*/) {
        return fail(Fault::world, "no messages between two ranks here");
    }

    // Whether the state of a training can be kept when a rank dies (training/survival.hpp): wait_all_reduces() succeeds only
    // if the step's sums are right on this rank, and a failed all_gather() leaves this rank's part as it was.
    virtual bool survives_deaths() const { return true; }
    // Succeeds only if every earlier call gave the right numbers on this rank. Over NCCL a rank may get garbage
    // before it hears of a death. Every rank calls, before it relies on results.
    virtual Result<void> confirm() { return {}; }

    // The rank whose part of a sharded optimizer this one may keep a copy of; each rank has a different one. It is on another
    // node where that was set (NodePlace::peer_before()).
    std::int64_t peer() const { return peer_.value_or((rank() + size() - 1) % size()); }
    void set_peer(std::optional<std::int64_t> rank) { peer_ = rank; }

    // If the ranks of a node keep one copy of sums and of Device::make_of_node(). Set on all ranks or none.
    virtual std::optional<NodeShare> node_share() const { return std::nullopt; }
    // A barrier of the node's ranks: afterwards all of them see what they wrote there. Every rank calls.
    virtual Result<void> node_barrier() { return {}; }

 private:
    std::optional<std::int64_t> peer_;
};

class SingleCommunicator final : public Communicator {
 public:
    std::string_view name() const override { return "single"; }
    std::int64_t rank() const override { return 0; }
    std::int64_t size() const override { return 1; }
    Result<void> all_reduce(const Tensor&, Reduction) override { return {}; }
    Result<void> all_gather(const Tensor&) override { return {}; }
    Result<void> broadcast(const Tensor&, std::int64_t) override { return {}; }
};

}  // namespace dp::trainer
