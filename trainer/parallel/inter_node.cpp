// SPDX-License-Identifier: Apache-2.0
//
// See inter_node.hpp.
#include "trainer/parallel/inter_node.hpp"

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

// The other rank of a mesh of two, in Gloo's synchronous mode: the thread that sums sends and receives
// itself. Otherwise Gloo's own thread receives, and on a busy CPU it polls in vain while the sender is
// descheduled. May throw, as Gloo does.
class OtherNode {
 public:
    explicit OtherNode(std::shared_ptr<::gloo::Context> mesh)
        : mesh_(std::move(mesh)), pair_(*mesh_->getPair(1 - mesh_->rank)) {
        pair_.setSync(true, false);
    }
    int rank() const { return mesh_->rank; }

    void send(void* from, std::size_t bytes) { pair_.createSendBuffer(kSlot, from, bytes)->send(0, bytes); }
    void receive(void* to, std::size_t bytes) { pair_.createRecvBuffer(kSlot, to, bytes)->waitRecv(); }

 private:
    static constexpr int kSlot = 0;  // one buffer at a time

    std::shared_ptr<::gloo::Context> mesh_;
    ::gloo::transport::Pair& pair_;
};

// One rank sends its numbers, the other adds its own and sends the sum back: as many bytes as Gloo's
// all-reduce, but in one direction at a time, as the synchronous mode needs.
class SlicesOfTwo {
 public:
    SlicesOfTwo(std::shared_ptr<::gloo::Context> mesh, std::int64_t index)
        : other_(std::move(mesh)),
          // Half of the slices go one way while the other half goes the other.
          adds_up_((other_.rank() + index) % 2 == 1) {}

    void sum(const Tensor& slice) {
        float* own = slice.data<float>();
        if (adds_up_) {
            received_.resize(static_cast<std::size_t>(slice.elements()));
            other_.receive(received_.data(), slice.bytes());
            add_up(std::array{own, received_.data()}, {0, slice.elements()});
            other_.send(own, slice.bytes());
        } else {
            other_.send(own, slice.bytes());
            other_.receive(own, slice.bytes());
        }
    }

 private:
    OtherNode other_;
    bool adds_up_;
    std::vector<float> received_;
};

// Both send, then both receive, and nobody waits for an answer.
class FewOfTwo {
 public:
    explicit FewOfTwo(std::shared_ptr<::gloo::Context> mesh) : other_(std::move(mesh)) {}

    void sum(const Tensor& numbers) {
        double* own = numbers.data<double>();
        received_.resize(static_cast<std::size_t>(numbers.elements()));
        other_.send(own, numbers.bytes());
        other_.receive(received_.data(), numbers.bytes());
        for (std::size_t i = 0; i < received_.size(); ++i) own[i] += received_[i];
    }

 private:
    OtherNode other_;
    std::vector<double> received_;
};

// The sum over two nodes, by Two, or over more, by Gloo's all-reduce.
template <typename Two, typename... Arguments>
Result<SumBetween> sum_between(std::shared_ptr<::gloo::Context> mesh, Arguments... arguments) {
    if (mesh->size != 2) {
        return [all = std::shared_ptr(make_gloo(std::move(mesh)))](const Tensor& numbers) {
            return all->all_reduce(numbers, Reduction::sum);
        };
    }
    survive_lost_ranks();
    try {
        return [two = std::make_shared<Two>(std::move(mesh), arguments...)](
                   const Tensor& numbers) -> Result<void> {
            try {
                two->sum(numbers);
                return {};
            } catch (const std::exception& error) {
                return gloo_broke_off("sum between two nodes", error);
            }
        };
    } catch (const std::exception& error) {
        return gloo_broke_off("connection between two nodes", error);
    }
}

}  // namespace

Result<SumBetween> sum_between_nodes(std::shared_ptr<::gloo::Context> mesh, std::int64_t index) {
    return sum_between<SlicesOfTwo>(std::move(mesh), index);
}

Result<SumBetween> sum_few_between_nodes(std::shared_ptr<::gloo::Context> mesh) {
    return sum_between<FewOfTwo>(std::move(mesh));
}

}  // namespace dp::trainer
