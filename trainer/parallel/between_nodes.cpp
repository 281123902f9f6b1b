// SPDX-License-Identifier: Apache-2.0
//
// See between_nodes.hpp.
#include "trainer/parallel/between_nodes.hpp"

#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>

#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "trainer/parallel/gloo.hpp"
#include "trainer/parallel/node_sums.hpp"

namespace dp::trainer {
namespace {

// Two ranks: one sends its numbers, the other adds them to its own and sends the sum back. As many bytes as
// Gloo's all-reduce moves, but one direction at a time, so that the threads that sum can send and receive
// themselves (Gloo's synchronous mode): with both directions at once Gloo's own thread receives, and on a
// busy CPU it polls in vain for as long as the one that sends has been put aside.
class TwoNodes {
 public:
    // May throw, as Gloo does.
    TwoNodes(std::shared_ptr<::gloo::Context> mesh, std::int64_t index)
        : mesh_(std::move(mesh)),
          pair_(*mesh_->getPair(1 - mesh_->rank)),
          // Half of the slices go one way while the other half goes the other.
          adds_up_((mesh_->rank + index) % 2 == 1) {
        pair_.setSync(true, false);
    }

    // May throw.
    void sum(const Tensor& slice) {
        float* own = slice.data<float>();
        if (adds_up_) {
            received_.resize(static_cast<std::size_t>(slice.elements()));
            receive(received_.data(), slice.bytes());
            add_up(std::array{own, received_.data()}, {0, slice.elements()});
            send(own, slice.bytes());
        } else {
            send(own, slice.bytes());
            receive(own, slice.bytes());
        }
    }

 private:
    std::shared_ptr<::gloo::Context> mesh_;
    ::gloo::transport::Pair& pair_;
    bool adds_up_;
    std::vector<float> received_;

    static constexpr int kSlot = 0;  // one buffer at a time

    void send(float* from, std::size_t bytes) { pair_.createSendBuffer(kSlot, from, bytes)->send(0, bytes); }
    void receive(float* to, std::size_t bytes) { pair_.createRecvBuffer(kSlot, to, bytes)->waitRecv(); }
};

}  // namespace

Result<SliceSum> sum_between_nodes(std::shared_ptr<::gloo::Context> mesh, std::int64_t index) {
    if (mesh->size != 2) {
        return [all = std::shared_ptr(make_gloo(std::move(mesh)))](const Tensor& slice) {
            return all->all_reduce(slice, Reduction::sum);
        };
    }
    survive_lost_ranks();
    try {
        return
            [two = std::make_shared<TwoNodes>(std::move(mesh), index)](const Tensor& slice) -> Result<void> {
                try {
                    two->sum(slice);
                    return {};
                } catch (const std::exception& error) {
                    return gloo_broke_off("sum between two nodes", error);
                }
            };
    } catch (const std::exception& error) {
        return gloo_broke_off("connection between two nodes", error);
    }
}

}  // namespace dp::trainer
