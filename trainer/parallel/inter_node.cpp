// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/inter_node.hpp"

#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>

#include <algorithm>
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

// One rank sends its numbers, the other `reduces` its own with them and sends the result back: as many bytes as
// Gloo's all-reduce, but in one direction at a time, as the synchronous mode needs.
template <typename Number, typename Reduces>
void one_answers(OtherNode& other, Number* own, std::vector<Number>& received, std::int64_t count,
                 bool answers, const Reduces& reduces) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Number);
    if (answers) {
        received.resize(static_cast<std::size_t>(count));
        other.receive(received.data(), bytes);
        reduces(own, received.data());
        other.send(own, bytes);
    } else {
        other.send(own, bytes);
        other.receive(own, bytes);
    }
}

// What a socket takes in without being read.
constexpr std::int64_t kBuffered = std::int64_t{16} << 10;

// Few numbers both send, then both receive, and nobody waits for an answer.
template <typename Number>
void all_reduce_with(OtherNode& other, const Tensor& numbers, Reduction reduction, bool answers) {
    Number* own = numbers.data<Number>();
    const std::int64_t count = numbers.elements();
    std::vector<Number> received(static_cast<std::size_t>(count));
    if (static_cast<std::int64_t>(numbers.bytes()) > kBuffered) {
        one_answers(other, own, received, count, answers,
                    [&](Number* mine, const Number* theirs) { reduce_into(mine, theirs, count, reduction); });
    } else {
        other.send(own, numbers.bytes());
        other.receive(received.data(), numbers.bytes());
        // In the same order on both, for the same bits.
        Number* first = answers ? received.data() : own;
        reduce_into(first, answers ? own : received.data(), count, reduction);
        if (answers) std::copy_n(first, count, own);
    }
}

}  // namespace

Result<InterNode> connect_nodes(
    const std::function<Result<std::shared_ptr<::gloo::Context>>(const std::string& name)>& connect,
    std::int64_t nodes, std::int64_t index) {
    auto mesh = DP_TRY(connect("between-nodes"));
    if (nodes > 2) {
        const std::shared_ptr<Communicator> sums = make_gloo(mesh, 0), others = make_gloo(mesh, 1);
        constexpr std::uint32_t kTag = 4;  // these two have 0 to 3
        return InterNode{
            [sums](const Tensor& slice) { return sums->all_reduce(slice, Reduction::sum); },
            [mesh](const Tensor& slice, const AddsPart& add) {
                return with_gloo("all-reduce between nodes", [&] { add_in_turn(mesh, kTag, slice, add); });
            },
            [sums](const Tensor& slice, std::int64_t root) { return sums->broadcast(slice, root); },
            [others](const Tensor& numbers, Reduction reduction) {
                return others->all_reduce(numbers, reduction);
            }};
    }
    const bool is_second = mesh->rank == 1;
    // Half of the slices go one way while the other half goes the other.
    const bool adds_up = (mesh->rank + index) % 2 == 1;
    auto another = DP_TRY(connect("more-between-nodes"));
    std::shared_ptr<OtherNode> sums, others;
    DP_TRY(with_gloo("connection between two nodes", [&] {
        sums = std::make_shared<OtherNode>(std::move(mesh));
        others = std::make_shared<OtherNode>(std::move(another));
    }));
    return InterNode{[sums, adds_up, received = std::vector<float>()](const Tensor& slice) mutable {
                         return with_gloo("all-reduce between two nodes", [&] {
                             one_answers(*sums, slice.data<float>(), received, slice.elements(), adds_up,
                                         [&](float* mine, float* theirs) {
                                             add_up(std::array{mine, theirs}, {0, slice.elements()});
                                         });
                         });
                     },
                     [sums, is_second](const Tensor& slice, const AddsPart& add) {
                         return with_gloo("all-reduce between two nodes", [&] {
                             if (is_second) sums->receive(slice.data<float>(), slice.bytes());
                             add({0, slice.elements()});
                             sums->send(slice.data<float>(), slice.bytes());
                             if (!is_second) sums->receive(slice.data<float>(), slice.bytes());
                         });
                     },
                     [sums, is_second](const Tensor& slice, std::int64_t root) {
                         return with_gloo("broadcast between two nodes", [&] {
                             if ((root == 1) == is_second)
                                 sums->send(slice.data<float>(), slice.bytes());
                             else
                                 sums->receive(slice.data<float>(), slice.bytes());
                         });
                     },
                     [others, is_second](const Tensor& numbers, Reduction reduction) {
                         return with_number_of(numbers.type(), [&](auto number) {
                             return with_gloo("all-reduce between two nodes", [&] {
                                 all_reduce_with<decltype(number)>(*others, numbers, reduction, is_second);
                             });
                         });
                     }};
}

}  // namespace dp::trainer
