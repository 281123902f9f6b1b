// SPDX-License-Identifier: Apache-2.0
//
// See node_communicator.hpp.
#include "trainer/parallel/node_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "trainer/base/node_place.hpp"
#include "trainer/parallel/agreement.hpp"
#include "trainer/parallel/background.hpp"
#include "trainer/parallel/node_barrier.hpp"
#include "trainer/parallel/node_memory.hpp"
#include "trainer/parallel/node_sums.hpp"
#include "trainer/parallel/peer_sockets.hpp"
#include "trainer/parallel/small_all_reduce.hpp"

namespace dp::trainer {
namespace {

class NodeCommunicator final : public Communicator {
 public:
    // `sum_between`: over the same local rank on all nodes; empty if there are no others. `few`: nullopt if
    // only the world can do small all-reduces.
    NodeCommunicator(std::unique_ptr<Communicator> world, SumBetween sum_between,
                     std::optional<SmallAllReduce> few, const NodePlace& place, PeerSockets neighbours,
                     std::shared_ptr<NodeMemory> memory, std::chrono::milliseconds patience)
        : world_(std::move(world)),
          sum_between_(std::move(sum_between)),
          share_{place.index, static_cast<std::int64_t>(place.neighbours.size()), place.fewest},
          patience_(patience),
          memory_(std::move(memory)),
          barrier_(memory_->barrier(), static_cast<std::uint32_t>(place.neighbours.size())),
          few_(std::move(few)),
          neighbours_(std::move(neighbours)) {}
    // Nobody is left to use a sum in progress.
    ~NodeCommunicator() override { break_off(); }

    // Ends all waits with an error as soon as a rank of the node is gone, or the world is being ended.
    Result<void> watch(const NodeSetting& setting) {
        if (setting.on_end) ending_ = setting.on_end([this] { break_off(); });
        return neighbours_.watch([this] { break_off(); });
    }

    std::string_view name() const override { return "node-memory"; }
    std::int64_t rank() const override { return world_->rank(); }
    std::int64_t size() const override { return world_->size(); }

    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        return world_->all_reduce(tensor, reduction);
    }
    Result<void> small_all_reduce(const Tensor& tensor) override {
        return few_ && SmallAllReduce::takes(tensor) ? broken_off_unless(few_->sum(tensor))
                                                     : world_->small_all_reduce(tensor);
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

    std::optional<NodeShare> node_share() const override { return share_; }
    Result<void> node_barrier() override { return broken_off_unless(meet(barrier_, patience_)); }

 private:
    std::unique_ptr<Communicator> world_;
    SumBetween sum_between_;
    NodeShare share_;
    std::chrono::milliseconds patience_;
    std::shared_ptr<NodeMemory> memory_;
    NodeBarrier barrier_;
    std::optional<SmallAllReduce> few_;
    bool is_summing_ = false;
    // Destroyed before what they use, the last one first.
    Background background_;
    PeerSockets neighbours_;
    std::shared_ptr<void> ending_;

    // The tensor's place in shared memory; nullopt if the world sums it.
    std::optional<NodeMemory::Part> shared(const Tensor& tensor) const {
        if (tensor.type() != Type::f32) return std::nullopt;
        return memory_->find(tensor.data<std::byte>(), tensor.bytes());
    }

    void break_off() {
        barrier_.break_off();
        if (few_) few_->break_off();
    }
    // On failure, ends the other ranks' waits now instead of when this process ends.
    Result<void> broken_off_unless(Result<void> done) {
        if (!done) break_off();
        return done;
    }

    Result<void> sum(const std::vector<NodeMemory::Part>& parts) {
        memory_->announce(parts.front());
        DP_TRY(meet(barrier_, patience_));  // the numbers of all are there
        if (!memory_->all_announced(parts.front()))
            return fail(Fault::world,
                        "the ranks of this node reduce different tensors: a mistake in the trainer");
        std::vector<Tensor> mine;
        for (const auto& part : parts) {
            const auto numbers = DP_TRY(memory_->of_all(part));
            const std::int64_t slices = slices_of(part.numbers(), share_.fewest);
            if (share_.index >= slices) continue;
            const Slice slice = slice_of(part.numbers(), slices, share_.index);
            add_up(numbers, slice);  // in the memory of the first
            const Tensor sum(memory_->of_first(part), Type::f32, {part.numbers()});
            mine.push_back(sum.view(slice.first, {slice.count}));
        }
        if (!sum_between_ || mine.empty()) return {};
        return mine.size() == 1 ? sum_between_(mine.front()) : sum_packed(mine);
    }

    // A message between busy CPUs costs more than a copy.
    Result<void> sum_packed(const std::vector<Tensor>& slices) {
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
        DP_TRY(sum_between_(all));
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

// This rank's part in setting up shared memory; each step follows only if the one before it succeeded
// on all ranks.
class Meeting {
 public:
    Result<void> prepare() {
        auto memory = DP_TRY(NodeMemory::make());
        auto neighbours = DP_TRY(PeerSockets::open());
        memory_ = std::move(memory);
        neighbours_.emplace(std::move(neighbours));
        return {};
    }
    DoorNumber door() const { return neighbours_ ? neighbours_->door() : DoorNumber{}; }

    Result<void> call_on(const std::vector<DoorNumber>& doors, std::size_t me) {
        return neighbours_->call_on(doors, me, memory_->file());
    }
    Result<void> let_in(std::size_t ranks, std::size_t me) {
        auto files = DP_TRY(neighbours_->let_in(ranks, me));
        return memory_->add_others(std::move(files), me);
    }

    std::shared_ptr<NodeMemory> memory() const { return memory_; }
    PeerSockets take_neighbours() { return std::move(*neighbours_); }

 private:
    std::shared_ptr<NodeMemory> memory_;
    std::optional<PeerSockets> neighbours_;
};

}  // namespace

Result<SharedNodes> share_nodes(std::unique_ptr<Communicator> world, Device& device,
                                const NodeSetting& setting) {
    Meeting meeting;
    const Result<void> prepared =
        setting.unwanted.empty() ? meeting.prepare() : fail(Fault::world, setting.unwanted);
    const DoorNumber door = meeting.door();
    const std::array mine{setting.node, door[0], door[1]};
    const auto of_all = DP_TRY(gather_of_all_ranks(mine, device, *world));

    std::vector<std::int64_t> nodes;
    for (std::size_t i = 0; i < of_all.size(); i += mine.size()) nodes.push_back(of_all[i]);
    const NodePlace place = place_among(nodes, world->rank());
    if (!place.has_neighbours_anywhere) return SharedNodes{std::move(world), ""};
    std::vector<DoorNumber> doors;
    for (const std::uint32_t rank : place.neighbours) {
        const std::size_t at = rank * mine.size();
        doors.push_back({of_all[at + 1], of_all[at + 2]});
    }
    const auto me = static_cast<std::size_t>(place.index);

    using Step = std::function<Result<void>()>;
    for (const Step& step : {Step([&] { return prepared; }), Step([&] { return meeting.call_on(doors, me); }),
                             Step([&] { return meeting.let_in(doors.size(), me); })}) {
        const auto failure = first_failure(step(), device, *world);
        if (!failure) return tl::unexpected(failure.error());
        if (!failure->empty()) return SharedNodes{std::move(world), *failure};
    }

    SumBetween sum_between;
    SmallAllReduce::Connect connect_few;
    if (place.nodes > 1 && !place.counterparts.empty()) {
        auto mesh = DP_TRY(setting.connect("between-nodes", place.counterparts));
        auto connected = DP_TRY(sum_between_nodes(std::move(mesh), place.index));
        sum_between = std::move(connected);
        connect_few = [connect = setting.connect, ranks = place.counterparts] {
            return connect("few-between-nodes", ranks).and_then(sum_few_between_nodes);
        };
    }
    std::optional<SmallAllReduce> few;
    if (place.is_even) few.emplace(meeting.memory(), place.fewest, setting.patience, std::move(connect_few));
    auto made =
        std::make_unique<NodeCommunicator>(std::move(world), std::move(sum_between), std::move(few), place,
                                           meeting.take_neighbours(), meeting.memory(), setting.patience);
    DP_TRY(made->watch(setting));
    device.set_shared_memory(
        {[memory = meeting.memory()](std::size_t bytes) { return memory->allocate(bytes); },
         [memory = meeting.memory()](std::size_t bytes) { return memory->allocate_of_node(bytes); },
         static_cast<std::int64_t>(doors.size())});
    return SharedNodes{std::move(made), ""};
}

}  // namespace dp::trainer
