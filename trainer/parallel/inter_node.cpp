// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/inter_node.hpp"

#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>

#include <array>
#include <csignal>
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
        std::signal(SIGPIPE, SIG_IGN);  // to write to a dead rank is an error to report
        pair_.setSync(true, false);
    }

    void send(void* from, std::size_t bytes) { pair_.createSendBuffer(kSlot, from, bytes)->send(0, bytes); }
    void receive(void* to, std::size_t bytes) { pair_.createRecvBuffer(kSlot, to, bytes)->waitRecv(); }

 private:
    static constexpr int kSlot = 0;  // one buffer at a time

    std::shared_ptr<::gloo::Context> mesh_;
    ::gloo::transport::Pair& pair_;
};

// Between two nodes by `sum`, which may throw; between more by Gloo's all-reduce.
Result<InterNodeAllReduce> over_nodes(std::shared_ptr<::gloo::Context> mesh,
                                      std::function<void(OtherNode&, const Tensor&)> sum) {
    if (mesh->size != 2)
        return [all = std::shared_ptr(make_gloo(std::move(mesh)))](const Tensor& numbers) {
            return all->all_reduce(numbers, Reduction::sum);
        };
    std::shared_ptr<OtherNode> other;
    DP_TRY(with_gloo("connection between two nodes",
                     [&] { other = std::make_shared<OtherNode>(std::move(mesh)); }));
    return [other, sum = std::move(sum)](const Tensor& numbers) {
        return with_gloo("all-reduce between two nodes", [&] { sum(*other, numbers); });
    };
}

}  // namespace

// One rank sends its numbers, the other adds its own and sends the sum back: as many bytes as Gloo's
// all-reduce, but in one direction at a time, as the synchronous mode needs.
Result<InterNodeAllReduce> inter_node_all_reduce(std::shared_ptr<::gloo::Context> mesh, std::int64_t index) {
    // Half of the slices go one way while the other half goes the other.
    const bool adds_up = (mesh->rank + index) % 2 == 1;
    return over_nodes(std::move(mesh), [adds_up, received = std::vector<float>()](
                                           OtherNode& other, const Tensor& slice) mutable {
        float* own = slice.data<float>();
        if (adds_up) {
            received.resize(static_cast<std::size_t>(slice.elements()));
            other.receive(received.data(), slice.bytes());
            add_up(std::array{own, received.data()}, {0, slice.elements()});
            other.send(own, slice.bytes());
        } else {
            other.send(own, slice.bytes());
            other.receive(own, slice.bytes());
        }
    });
}

// Both send, then both receive, and nobody waits for an answer.
Result<InterNodeAllReduce> small_inter_node_all_reduce(std::shared_ptr<::gloo::Context> mesh) {
    return over_nodes(std::move(mesh),
                      [received = std::vector<double>()](OtherNode& other, const Tensor& numbers) mutable {
                          double* own = numbers.data<double>();
                          received.resize(static_cast<std::size_t>(numbers.elements()));
                          other.send(own, numbers.bytes());
                          other.receive(received.data(), numbers.bytes());
                          for (std::size_t i = 0; i < received.size(); ++i) own[i] += received[i];
                      });
}

}  // namespace dp::trainer
