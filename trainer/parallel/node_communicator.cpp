// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>

#include "trainer/base/node_place.hpp"
#include "trainer/parallel/background.hpp"
#include "trainer/parallel/bf16_sums.hpp"
#include "trainer/parallel/inter_node.hpp"
#include "trainer/parallel/node_barrier.hpp"
#include "trainer/parallel/node_memory.hpp"
#include "trainer/parallel/node_sums.hpp"
#include "trainer/parallel/peer_sockets.hpp"

namespace dp::trainer {
namespace {

class NodeCommunicator final : public Communicator {
 public:
    NodeCommunicator(std::unique_ptr<Communicator> world, std::vector<std::int64_t> node_of_rank,
                     const NodePlace& place, const NodeSetting& setting, std::shared_ptr<NodeMemory> memory,
                     PeerSockets sockets)
        : world_(std::move(world)),
          node_of_rank_(std::move(node_of_rank)),
          place_(place),
          memory_(std::move(memory)),
          barrier_(memory_->barrier(), static_cast<std::uint32_t>(memory_->ranks()), setting.timeout),
          room_barrier_(memory_->room_barrier(), static_cast<std::uint32_t>(memory_->ranks()),
                        setting.timeout),
          sockets_(std::move(sockets)) {}
    // Nobody is left to use a sum in progress.
    ~NodeCommunicator() override { break_off(); }

    // Connects the nodes. All waits end with an error once a rank of the node is gone or the world is ended.
    Result<void> start(const NodeSetting& setting) {
        if (place_.nodes > 1 && !place_.peers.empty()) {
            const auto connect = [&](const std::string& name) { return setting.connect(name, place_.peers); };
            inter_node_ = DP_TRY(connect_nodes(connect, place_.nodes, place_.local_rank));
        }
        if (setting.on_end) ending_ = setting.on_end([this] { break_off(); });
        return sockets_.watch([this] { break_off(); });
    }

    std::string_view name() const override { return "node-memory"; }
    std::int64_t rank() const override { return world_->rank(); }
    std::int64_t size() const override { return world_->size(); }

    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        if (tensor.type() == Type::bf16) return bf16_sums_.all_reduce(*this, tensor, reduction);
        // Different nodes would add up in different orders.
        if (!place_.is_homogeneous) return world_->all_reduce(tensor, reduction);
        return broken_off_unless(with_number_of(
            tensor.type(), [&](auto number) { return reduce_in_room<decltype(number)>(tensor, reduction); }));
    }
    // Between nodes by the mesh of all ranks.
    Result<void> all_gather(const Tensor& tensor) override {
        if (place_.nodes > 1) return world_->all_gather(tensor);
        return broken_off_unless(gather_in_room(tensor));
    }
    Result<void> reduce_scatter(const Tensor& tensor) override {
        if (tensor.type() == Type::bf16) return bf16_sums_.reduce_scatter(*this, tensor);
        if (tensor.type() != Type::f32) return all_reduce(tensor, Reduction::sum);
        if (place_.nodes > 1) return world_->reduce_scatter(tensor);
        return broken_off_unless(scatter_in_room(tensor));
    }

    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        const auto part = shared(tensor);
        if (!part) return world_->broadcast(tensor, root);
        return broken_off_unless(broadcast_part(*part, root));
    }

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
    std::optional<std::int64_t> background_nanoseconds() const override {
        return background_.busy_nanoseconds() + world_->background_nanoseconds().value_or(0);
    }
    bool adds_in_order() const override { return place_.is_in_order; }
    Result<void> start_adding(std::span<const Tensor> tensors, std::span<const Tensor> sums) override {
        std::vector<Addend> all;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            if (tensors[i].elements() == 0) continue;
            auto part = shared(tensors[i]);
            if (!part)
                return fail(Fault::world,
                            "a sum of what the ranks of a node do not share: a bug in the trainer");
            all.push_back({std::move(*part), sums[i]});
        }
        if (all.empty()) return {};
        is_summing_ = true;
        background_.start([this, all = std::move(all)] { return broken_off_unless(add(all)); });
        return {};
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
    std::vector<std::int64_t> node_of_rank_;
    NodePlace place_;
    InterNode inter_node_;  // empty if there is one node, or no peer on another
    std::shared_ptr<NodeMemory> memory_;
    NodeBarrier barrier_, room_barrier_;
    // The room is double-buffered: a rank that is ahead may write numbers while others read these.
    unsigned turn_ = 0;
    bool is_summing_ = false;
    Bf16Sums bf16_sums_;
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
        room_barrier_.break_off();
    }
    // On failure, ends the other ranks' waits now instead of when this process ends.
    Result<void> broken_off_unless(Result<void> done) {
        if (!done) break_off();
        return done;
    }

    // Piece by piece.
    template <typename Number>
    Result<void> reduce_in_room(const Tensor& tensor, Reduction reduction) {
        constexpr auto kPiece = static_cast<std::int64_t>(NodeMemory::kRoom / sizeof(Number));
        for (std::int64_t first = 0; first < tensor.elements(); first += kPiece) {
            const std::int64_t count = std::min(kPiece, tensor.elements() - first);
            DP_TRY(reduce_piece<Number>(tensor.view(first, {count}), reduction));
        }
        return {};
    }

    // Few numbers each rank reduces itself and exchanges the result with its peers: one wait and one message,
    // because on shared CPUs each wake-up costs more than the sum. Of more numbers each does a slice, leaves it where
    // its own slice was, which nobody else reads before, and takes the others'.
    template <typename Number>
    Result<void> reduce_piece(const Tensor& piece, Reduction reduction) {
        Number* numbers = piece.data<Number>();
        const std::int64_t count = piece.elements();
        const std::int64_t slices = count <= kFew ? 1 : static_cast<std::int64_t>(memory_->ranks());
        const Shard mine = slices == 1 ? Shard{0, count} : shard_of(count, place_.local_rank, slices);
        turn_ ^= 1U;
        const auto room = [&](std::size_t rank) { return memory_->room<Number>(rank, turn_); };
        std::copy_n(numbers, count, room(memory_->me()));
        DP_TRY(room_barrier_.wait());
        std::copy_n(room(0) + mine.first, mine.count, numbers + mine.first);
        for (std::size_t rank = 1; rank < memory_->ranks(); ++rank)
            reduce_into(numbers + mine.first, room(rank) + mine.first, mine.count, reduction);
        if (inter_node_.all_reduce)
            DP_TRY(inter_node_.all_reduce(piece.view(mine.first, {mine.count}), reduction));
        if (slices == 1) return {};
        std::copy_n(numbers + mine.first, mine.count, room(memory_->me()) + mine.first);
        DP_TRY(room_barrier_.wait());
        for (std::int64_t rank = 0; rank < slices; ++rank) {
            const Shard theirs = shard_of(count, rank, slices);
            std::copy_n(room(static_cast<std::size_t>(rank)) + theirs.first, theirs.count,
                        numbers + theirs.first);
        }
        return {};
    }
    static constexpr std::int64_t kFew = 2048;

    // Of a tensor of one node: each rank shows some of its part, and takes the others'.
    Result<void> gather_in_room(const Tensor& tensor) {
        const auto ranks = static_cast<std::int64_t>(memory_->ranks()),
                   size = static_cast<std::int64_t>(size_of(tensor.type())),
                   most = static_cast<std::int64_t>(NodeMemory::kRoom) / size;
        for (std::int64_t done = 0; done < largest_shard(tensor.elements(), ranks); done += most) {
            turn_ ^= 1U;
            const auto piece_of = [&](std::int64_t rank) {
                const Shard part = shard_of(tensor.elements(), rank, ranks);
                return std::span(
                    tensor.data<std::byte>() + (part.first + done) * size,
                    static_cast<std::size_t>(std::clamp<std::int64_t>(part.count - done, 0, most) * size));
            };
            std::ranges::copy(piece_of(place_.local_rank), memory_->room<std::byte>(memory_->me(), turn_));
            DP_TRY(room_barrier_.wait());
            for (std::int64_t rank = 0; rank < ranks; ++rank) {
                if (rank == place_.local_rank) continue;
                const auto theirs = piece_of(rank);
                std::copy_n(memory_->room<std::byte>(static_cast<std::size_t>(rank), turn_), theirs.size(),
                            theirs.begin());
            }
        }
        return {};
    }
    // Each rank shows some of every part, and adds up what all show of its own, in their order.
    Result<void> scatter_in_room(const Tensor& tensor) {
        const auto ranks = static_cast<std::int64_t>(memory_->ranks()),
                   most = static_cast<std::int64_t>(NodeMemory::kRoom / sizeof(float)) / ranks;
        for (std::int64_t done = 0; done < largest_shard(tensor.elements(), ranks); done += most) {
            turn_ ^= 1U;
            const auto piece_of = [&](std::int64_t rank) {
                const Shard part = shard_of(tensor.elements(), rank, ranks);
                return std::span(
                    tensor.data<float>() + part.first + done,
                    static_cast<std::size_t>(std::clamp<std::int64_t>(part.count - done, 0, most)));
            };
            for (std::int64_t rank = 0; rank < ranks; ++rank)
                std::ranges::copy(piece_of(rank), memory_->room<float>(memory_->me(), turn_) + rank * most);
            DP_TRY(room_barrier_.wait());
            const auto mine = piece_of(place_.local_rank);
            const auto shown_by = [&](std::size_t rank) {
                return memory_->room<float>(rank, turn_) + place_.local_rank * most;
            };
            std::copy_n(shown_by(0), mine.size(), mine.begin());
            for (std::size_t rank = 1; rank < memory_->ranks(); ++rank)
                reduce_into(mine.data(), shown_by(rank), static_cast<std::int64_t>(mine.size()),
                            Reduction::sum);
        }
        return {};
    }

    // Waits until the numbers of all are there.
    Result<void> meet(const NodeMemory::Part& part) {
        memory_->announce(part);
        DP_TRY(barrier_.wait());
        if (memory_->all_announced(part)) return {};
        return fail(Fault::world, "the ranks of this node reduce different tensors: a bug in the trainer");
    }

    // The ranks of the root's node take a slice each from its memory and send it to their peers.
    Result<void> broadcast_part(const NodeMemory::Part& part, std::int64_t root) {
        DP_TRY(meet(part));
        const auto numbers = DP_TRY(memory_->of_all(part));
        const std::int64_t slices = slices_of(part.numbers(), place_.fewest);
        if (place_.local_rank < slices) {
            const Shard slice = slice_of(part.numbers(), slices, place_.local_rank);
            const Tensor all(memory_->of_first(part), Type::f32, {part.numbers()});
            const auto from = std::ranges::find(place_.local_ranks, static_cast<std::uint32_t>(root));
            if (from != place_.local_ranks.begin() && from != place_.local_ranks.end())
                std::copy_n(
                    numbers[static_cast<std::size_t>(from - place_.local_ranks.begin())] + slice.first,
                    slice.count, all.data<float>() + slice.first);
            const auto is_of_the_root = [&](std::uint32_t peer) {
                return node_of_rank_[peer] == node_of_rank_[static_cast<std::size_t>(root)];
            };
            const auto peer = std::ranges::find_if(place_.peers, is_of_the_root);
            if (inter_node_.broadcast)
                DP_TRY(
                    inter_node_.broadcast(all.view(slice.first, {slice.count}), peer - place_.peers.begin()));
        }
        return barrier_.wait();
    }

    Result<void> sum(const std::vector<NodeMemory::Part>& parts) {
        DP_TRY(meet(parts.front()));
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
        if (!inter_node_.sum || mine.empty()) return {};
        return mine.size() == 1 ? inter_node_.sum(mine.front()) : all_reduce_packed(mine);
    }

    // What is added in the order of the ranks, and to what.
    struct Addend {
        NodeMemory::Part part;
        Tensor sum;  // of the node
    };
    // Node by node, since ranks are numbered so.
    Result<void> add(const std::vector<Addend>& all) {
        DP_TRY(meet(all.front().part));
        for (const auto& [part, sum] : all) {
            std::vector<float*> numbers = DP_TRY(memory_->of_all(part));
            const std::int64_t slices = slices_of(part.numbers(), place_.fewest);
            if (place_.local_rank >= slices) continue;
            const Shard slice = slice_of(part.numbers(), slices, place_.local_rank);
            numbers.insert(numbers.begin(), sum.data<float>());
            const auto add_to = [&](const Shard& piece) {
                add_up(numbers, {slice.first + piece.first, piece.count});
            };
            if (inter_node_.add_in_turn)
                DP_TRY(inter_node_.add_in_turn(sum.view(slice.first, {slice.count}), add_to));
            else
                add_to({0, slice.count});
        }
        return {};
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
        DP_TRY(inter_node_.sum(all));
        copy_each(true);
        return {};
    }
};

}  // namespace

Result<SharedNodes> share_nodes(std::unique_ptr<Communicator> world, const NodeSetting& setting) {
    std::shared_ptr<NodeMemory> memory;
    const OwnFile own{
        [&](const NodePlace&) -> Result<int> {
            memory = DP_TRY(NodeMemory::make());
            return memory->file();
        },
        [&](std::vector<Fd> others, std::size_t me) { return memory->add_others(std::move(others), me); }};
    auto files = DP_TRY(exchange_files(setting, world->rank(), own));
    const NodePlace& place = files.place;
    const auto peer = place.peer_before(world->rank());
    world->set_peer(peer);
    if (!files.are_shared()) return SharedNodes{std::move(world), std::move(files.why_not)};

    auto made = std::make_unique<NodeCommunicator>(std::move(world), std::move(files.node_of_rank), place,
                                                   setting, memory, std::move(*files.sockets));
    made->set_peer(peer);
    DP_TRY(made->start(setting));
    SharedMemory of_device{[memory](std::size_t bytes) { return memory->allocate(bytes); },
                           [memory](std::size_t bytes) { return memory->allocate_of_node(bytes); },
                           static_cast<std::int64_t>(place.local_ranks.size())};
    return SharedNodes{std::move(made), "", std::move(of_device)};
}

}  // namespace dp::trainer
