// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>

#include "trainer/base/node_place.hpp"
#include "trainer/parallel/agreement.hpp"
#include "trainer/parallel/background.hpp"
#include "trainer/parallel/inter_node.hpp"
#include "trainer/parallel/node_barrier.hpp"
#include "trainer/parallel/node_memory.hpp"
#include "trainer/parallel/node_sums.hpp"
#include "trainer/parallel/peer_sockets.hpp"

namespace dp::trainer {
namespace {

class NodeCommunicator final : public Communicator {
 public:
    NodeCommunicator(std::unique_ptr<Communicator> world, const NodePlace& place, const NodeSetting& setting,
                     std::shared_ptr<NodeMemory> memory, PeerSockets sockets)
        : world_(std::move(world)),
          place_(place),
          connect_(setting.connect),
          memory_(std::move(memory)),
          barrier_(memory_->barrier(), static_cast<std::uint32_t>(memory_->ranks()), setting.timeout),
          small_barrier_(memory_->small_barrier(), static_cast<std::uint32_t>(memory_->ranks()),
                         setting.timeout),
          sockets_(std::move(sockets)) {}
    // Nobody is left to use a sum in progress.
    ~NodeCommunicator() override { break_off(); }

    // Connects the nodes. All waits end with an error once a rank of the node is gone or the world is ended.
    Result<void> start(const NodeSetting& setting) {
        if (place_.nodes > 1 && !place_.peers.empty()) {
            auto mesh = DP_TRY(connect_("between-nodes", place_.peers));
            inter_node_ = DP_TRY(inter_node_all_reduce(std::move(mesh), place_.local_rank));
        }
        if (setting.on_end) ending_ = setting.on_end([this] { break_off(); });
        return sockets_.watch([this] { break_off(); });
    }

    std::string_view name() const override { return "node-memory"; }
    std::int64_t rank() const override { return world_->rank(); }
    std::int64_t size() const override { return world_->size(); }

    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        return world_->all_reduce(tensor, reduction);
    }
    Result<void> small_all_reduce(const Tensor& tensor) override {
        // Different nodes would add up in different orders.
        if (!place_.is_homogeneous || tensor.type() != Type::f64 || tensor.elements() > NodeMemory::kSmall)
            return world_->small_all_reduce(tensor);
        return broken_off_unless(sum_small(tensor));
    }
    Result<void> all_gather(const Tensor& tensor) override { return world_->all_gather(tensor); }

    Result<void> start_all_reduce(const Tensor& tensor) override { return start_all_reduces({&tensor, 1}); }
    Result<void> start_all_reduces(std::span<const Tensor> tensors) override {
        std::vector<NodeMemory::Part> parts;
        for (const Tensor& tensor : tensors) {
            if (tensor.elements() == 0) continue;
            if (auto part = shared(tensor))
                parts.push_back(std::move(*part));
            else
                DP_TRY(world_->start_all_reduce(tensor));
        }
        if (parts.empty()) return {};
        is_summing_ = true;
        background_.start([this, parts = std::move(parts)] { return broken_off_unless(sum(parts)); });
        return {};
    }
    Result<void> wait_all_reduces() override {
        auto done = background_.finish();
        auto others_done = world_->wait_all_reduces();
        if (!done) return done;
        if (!others_done) return others_done;
        // Waits until all ranks have written their parts.
        return std::exchange(is_summing_, false) ? node_barrier() : Result<void>();
    }
    Tensor result_of(const Tensor& tensor) override {
        const auto part = shared(tensor);
        return part ? Tensor(memory_->of_first(*part), Type::f32, tensor.shape()) : tensor;
    }

    std::optional<NodeShare> node_share() const override {
        return NodeShare{place_.local_rank, static_cast<std::int64_t>(memory_->ranks()), place_.fewest};
    }
    Result<void> node_barrier() override { return broken_off_unless(barrier_.wait()); }

 private:
    std::unique_ptr<Communicator> world_;
    NodePlace place_;
    decltype(NodeSetting::connect) connect_;
    InterNodeAllReduce inter_node_;        // of slices; empty if there is one node, or no peer on another
    InterNodeAllReduce small_inter_node_;  // connected when it is first needed
    std::shared_ptr<NodeMemory> memory_;
    NodeBarrier barrier_, small_barrier_;
    // Small all-reduces are double-buffered: a rank that is ahead may write numbers while others read these.
    unsigned turn_ = 0;
    bool is_summing_ = false;
    // Destroyed before what they use, the last one first.
    Background background_;
    PeerSockets sockets_;
    std::shared_ptr<void> ending_;

    // The tensor's place in shared memory; nullopt if the world sums it.
    std::optional<NodeMemory::Part> shared(const Tensor& tensor) const {
        if (tensor.type() != Type::f32) return std::nullopt;
        return memory_->find(tensor.data<std::byte>(), tensor.bytes());
    }

    void break_off() {
        barrier_.break_off();
        small_barrier_.break_off();
    }
    // On failure, ends the other ranks' waits now instead of when this process ends.
    Result<void> broken_off_unless(Result<void> done) {
        if (!done) break_off();
        return done;
    }

    // Each rank adds up its node's numbers itself and exchanges the result with its peers: one wait and one
    // message, because on shared CPUs each wake-up costs more than the sum.
    Result<void> sum_small(const Tensor& numbers) {
        const std::span sum(numbers.data<double>(), static_cast<std::size_t>(numbers.elements()));
        turn_ ^= 1U;
        std::copy(sum.begin(), sum.end(), memory_->small(memory_->me(), turn_));
        DP_TRY(small_barrier_.wait());
        std::fill(sum.begin(), sum.end(), 0.0);
        for (std::size_t rank = 0; rank < memory_->ranks(); ++rank) {
            const double* of_rank = memory_->small(rank, turn_);
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += of_rank[i];
        }
        if (place_.nodes == 1) return {};
        if (!small_inter_node_) {
            auto mesh = DP_TRY(connect_("few-between-nodes", place_.peers));
            small_inter_node_ = DP_TRY(small_inter_node_all_reduce(std::move(mesh)));
        }
        return small_inter_node_(numbers);
    }

    Result<void> sum(const std::vector<NodeMemory::Part>& parts) {
        memory_->announce(parts.front());
        DP_TRY(barrier_.wait());  // the numbers of all are there
        if (!memory_->all_announced(parts.front()))
            return fail(Fault::world,
                        "the ranks of this node all-reduce different tensors: a bug in the trainer");
        std::vector<Tensor> mine;
        for (const auto& part : parts) {
            const auto numbers = DP_TRY(memory_->of_all(part));
            const std::int64_t slices = slices_of(part.numbers(), place_.fewest);
            if (place_.local_rank >= slices) continue;
            const Shard slice = slice_of(part.numbers(), slices, place_.local_rank);
            add_up(numbers, slice);  // in the memory of the first
            const Tensor sum(memory_->of_first(part), Type::f32, {part.numbers()});
            mine.push_back(sum.view(slice.first, {slice.count}));
        }
        if (!inter_node_ || mine.empty()) return {};
        return mine.size() == 1 ? inter_node_(mine.front()) : all_reduce_packed(mine);
    }

    // A message between busy CPUs costs more than a copy.
    Result<void> all_reduce_packed(const std::vector<Tensor>& slices) {
        std::int64_t count = 0;
        for (const Tensor& slice : slices) count += slice.elements();
        const auto room = std::make_shared<std::vector<float>>(static_cast<std::size_t>(count));
        const Tensor all(std::shared_ptr<void>(room, room->data()), Type::f32, {count});
        const auto copy_each = [&](bool back) {
            float* at = room->data();
            for (const Tensor& slice : slices) {
                std::memcpy(back ? slice.data<float>() : at, back ? at : slice.data<float>(), slice.bytes());
                at += slice.elements();
            }
        };
        copy_each(false);
        DP_TRY(inter_node_(all));
        copy_each(true);
        return {};
    }
};

// The message of the first rank for which a step failed that all ranks have tried.
Result<std::string> first_failure(const Result<void>& mine, Device& device, Communicator& world) {
    std::array<std::int64_t, 20> text{};  // as much of it as that holds, and a zero
    if (!mine) mine.error().message.copy(reinterpret_cast<char*>(text.data()), sizeof text - 1);
    const auto all = DP_TRY(gather_of_all_ranks(text, device, world));
    for (std::size_t rank = 0; rank < all.size() / text.size(); ++rank) {
        const auto* found = reinterpret_cast<const char*>(all.data() + rank * text.size());
        if (*found != 0) return fmt::format("rank {}: {}", rank, found);
    }
    return std::string();
}

}  // namespace

Result<SharedNodes> share_nodes(std::unique_ptr<Communicator> world, Device& device,
                                const NodeSetting& setting) {
    const auto wanted = setting.unwanted.empty() ? Result<void>() : fail(Fault::world, setting.unwanted);
    auto memory = wanted.and_then(NodeMemory::make);
    auto sockets = memory.and_then([](const auto&) { return PeerSockets::open(); });
    const SocketName name = sockets ? sockets->name() : SocketName{};
    const std::array mine{setting.node, name[0], name[1]};
    const auto of_all = DP_TRY(gather_of_all_ranks(mine, device, *world));

    std::vector<std::int64_t> nodes;
    for (std::size_t i = 0; i < of_all.size(); i += mine.size()) nodes.push_back(of_all[i]);
    const NodePlace place = place_among(nodes, world->rank());
    if (!place.is_any_shared) return SharedNodes{std::move(world), ""};
    std::vector<SocketName> names;
    for (const std::uint32_t rank : place.local_ranks) {
        const std::size_t at = rank * mine.size();
        names.push_back({of_all[at + 1], of_all[at + 2]});
    }
    const auto me = static_cast<std::size_t>(place.local_rank);

    // Each step follows only if the one before it succeeded on all ranks.
    using Step = std::function<Result<void>()>;
    const Step open = [&] { return sockets.map([](const auto&) {}); },
               send = [&] { return sockets->send_fd(names, me, (*memory)->file()); },
               accept = [&]() -> Result<void> {
                   auto files = DP_TRY(sockets->accept_fds(names.size(), me));
                   return (*memory)->add_others(std::move(files), me);
               };
    for (const Step& step : {open, send, accept}) {
        const auto failure = DP_TRY(first_failure(step(), device, *world));
        if (!failure.empty()) return SharedNodes{std::move(world), failure};
    }

    auto made =
        std::make_unique<NodeCommunicator>(std::move(world), place, setting, *memory, std::move(*sockets));
    DP_TRY(made->start(setting));
    device.set_shared_memory(
        {[memory = *memory](std::size_t bytes) { return memory->allocate(bytes); },
         [memory = *memory](std::size_t bytes) { return memory->allocate_of_node(bytes); },
         static_cast<std::int64_t>(names.size())});
    return SharedNodes{std::move(made), ""};
}

}  // namespace dp::trainer
