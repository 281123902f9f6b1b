// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/gloo.hpp"

#include <fmt/format.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/parallel/background.hpp"
#include "trainer/parallel/bf16_sums.hpp"
#include "trainer/parallel/node_sums.hpp"

namespace dp::trainer {
namespace {

class GlooCommunicator final : public Communicator {
 public:
    GlooCommunicator(std::shared_ptr<::gloo::Context> mesh, std::uint32_t number)
        : mesh_(std::move(mesh)), now_(2 * number), started_(now_ + 1) {}

    std::string_view name() const override { return "gloo"; }
    std::int64_t rank() const override { return mesh_->rank; }
    std::int64_t size() const override { return mesh_->size; }

    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        if (tensor.type() == Type::bf16) return bf16_sums_.all_reduce(*this, tensor, reduction);
        return reduce(tensor, reduction, now_);
    }

    Result<void> all_gather(const Tensor& tensor) override {
        if (size() == 1) return {};
        std::vector<std::size_t> bytes;
        for (std::int64_t rank = 0; rank < size(); ++rank)
            bytes.push_back(static_cast<std::size_t>(shard_of(tensor.elements(), rank, size()).count) *
                            size_of(tensor.type()));
        return with_gloo("all-gather", [&] {
            ::gloo::AllgathervOptions options(mesh_);
            options.setTag(now_);
            options.setOutput(static_cast<char*>(tensor.data<void>()), std::move(bytes));
            ::gloo::allgatherv(options);
        });
    }

    // Each rank sends every other its part: a message to each, the fewest bytes that there can be, and sums in the order of the ranks.
    // (Gloo's own, an algorithm of its first interface, takes new slots of the mesh for each tensor until there are no more.)
    Result<void> reduce_scatter(const Tensor& tensor) override {
        if (size() == 1) return {};
        if (tensor.type() == Type::bf16) return bf16_sums_.reduce_scatter(*this, tensor);
        if (tensor.type() != Type::f32) return all_reduce(tensor, Reduction::sum);
        const auto part_of = [&](std::int64_t rank) { return shard_of(tensor.elements(), rank, size()); };
        const auto bytes_of = [](std::int64_t numbers) {
            return static_cast<std::size_t>(numbers) * sizeof(float);
        };
        const Shard mine = part_of(rank());
        scattered_.resize(static_cast<std::size_t>(size() * mine.count));
        const auto from_rank = [&](std::int64_t rank) { return scattered_.data() + rank * mine.count; };
        return with_gloo("reduce-scatter", [&] {
            const auto slot = ::gloo::Slot::build(0x72, now_);  // none of Gloo's own
            const auto out = mesh_->createUnboundBuffer(tensor.data<void>(), tensor.bytes()),
                       in = mesh_->createUnboundBuffer(scattered_.data(), bytes_of(size() * mine.count));
            int sent = 0, received = 0;
            for (std::int64_t step = 1; step < size(); ++step) {
                const std::int64_t to = (rank() + step) % size(), from = (rank() + size() - step) % size();
                if (const Shard theirs = part_of(to); theirs.count > 0) {
                    out->send(static_cast<int>(to), slot, bytes_of(theirs.first), bytes_of(theirs.count));
                    ++sent;
                }
                if (mine.count == 0) continue;
                in->recv(static_cast<int>(from), slot, bytes_of(from * mine.count), bytes_of(mine.count));
                ++received;
            }
            float* sum = tensor.data<float>() + mine.first;
            std::copy_n(sum, mine.count, from_rank(rank()));
            for (; received > 0; --received) in->waitRecv(mesh_->getTimeout());
            std::copy_n(from_rank(0), mine.count, sum);
            for (std::int64_t rank = 1; rank < size(); ++rank)
                reduce_into(sum, from_rank(rank), mine.count, Reduction::sum);
            for (; sent > 0; --sent) out->waitSend(mesh_->getTimeout());
        });
    }

    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        if (size() == 1) return {};
        return with_gloo("broadcast", [&] {
            ::gloo::BroadcastOptions options(mesh_);
            options.setTag(now_);
            options.setRoot(static_cast<int>(root));
            options.setOutput(static_cast<char*>(tensor.data<void>()), tensor.bytes());
            ::gloo::broadcast(options);
        });
    }

    Result<void> start_all_reduce(const Tensor& tensor) override {
        background_.start([this, tensor] { return reduce(tensor, Reduction::sum, started_); });
        return {};
    }
    Result<void> start_send(const Tensor& tensor, std::int64_t to, Lane lane) override {
        return with_gloo("sending", [&] {
            auto buffer = mesh_->createUnboundBuffer(tensor.data<void>(), tensor.bytes());
            buffer->send(static_cast<int>(to), message_slot(lane));
            sent_.push_back({tensor, std::move(buffer)});
        });
    }
    Result<void> wait_send(const Tensor& tensor) override {
        return with_gloo("sending", [&] {
            for (auto one = sent_.begin(); one != sent_.end();) {
                if (one->tensor.data<void>() != tensor.data<void>()) {
                    ++one;
                    continue;
                }
                one->buffer->waitSend(mesh_->getTimeout());
                one = sent_.erase(one);
            }
        });
    }
    Result<void> receive(const Tensor& tensor, std::int64_t from, Lane lane) override {
        return with_gloo("receiving", [&] {
            const auto buffer = mesh_->createUnboundBuffer(tensor.data<void>(), tensor.bytes());
            buffer->recv(static_cast<int>(from), message_slot(lane));
            buffer->waitRecv(mesh_->getTimeout());
        });
    }
    bool adds_in_order() const override { return true; }
    Result<void> start_adding(std::span<const Tensor> tensors, std::span<const Tensor> sums) override {
        for (std::size_t i = 0; i < tensors.size(); ++i)
            background_.start([this, from = tensors[i], to = sums[i]] {
                return with_gloo("all-reduce", [&] {
                    add_in_turn(mesh_, started_, to, [&](const Shard& part) {
                        add_up(std::array{to.data<float>(), from.data<float>()}, part);
                    });
                });
            });
        return {};
    }
    Result<void> wait_all_reduces() override { return background_.finish(); }
    std::optional<std::int64_t> background_nanoseconds() const override {
        return background_.busy_nanoseconds();
    }

 private:
    std::shared_ptr<::gloo::Context> mesh_;
    // Gloo's tags, which separate the messages of concurrent collectives.
    const std::uint32_t now_, started_;
    struct Sent {
        Tensor tensor;  // whose memory it needs
        std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
    };
    std::vector<Sent> sent_;        // that nobody has waited for
    std::vector<float> scattered_;  // each rank's numbers for this rank's part of a sum
    Bf16Sums bf16_sums_;
    Background background_;  // ends before the mesh

    // Of messages between two ranks; none of Gloo's own.
    std::uint64_t message_slot(Lane lane) const {
        return ::gloo::Slot::build(lane == Lane::activations ? 0x71 : 0x73, now_);
    }

    Result<void> reduce(const Tensor& tensor, Reduction reduction, std::uint32_t tag) {
        return with_number_of(tensor.type(),
                              [&](auto number) { return reduce<decltype(number)>(tensor, reduction, tag); });
    }

    // BCUBE: each rank reduces one part in log2(ranks) exchanges, then the parts are gathered, so all get the
    // same bits. Twice as fast as the default, a ring, on shared CPUs: each rank is woken less often.
    template <typename T>
    Result<void> reduce(const Tensor& tensor, Reduction reduction, std::uint32_t tag) {
        using Function = void (*)(void*, const void*, const void*, std::size_t);
        const Function sum = &::gloo::sum<T>, max = &::gloo::max<T>;  // picks one of their overloads
        return with_gloo("all-reduce", [&] {
            ::gloo::AllreduceOptions options(mesh_);
            options.setTag(tag);
            options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::BCUBE);
            options.setOutput(tensor.data<T>(), static_cast<std::size_t>(tensor.elements()));
            options.setReduceFunction(reduction == Reduction::sum ? sum : max);
            ::gloo::allreduce(options);
        });
    }
};

}  // namespace

void add_in_turn(const std::shared_ptr<::gloo::Context>& mesh, std::uint32_t tag, const Tensor& total,
                 const AddsPart& add) {
    constexpr std::uint8_t kPrefix = 0x70;  // none of Gloo's own
    // The next ranks add to one while this one adds to another.
    constexpr std::int64_t kPiece = std::int64_t{1} << 16;
    const auto slot = ::gloo::Slot::build(kPrefix, tag);
    const int last = mesh->size - 1;
    const auto there = mesh->createUnboundBuffer(total.data<void>(), total.bytes());
    int sent = 0;
    for (std::int64_t first = 0; first < total.elements(); first += kPiece) {
        const Shard piece{first, std::min(kPiece, total.elements() - first)};
        const auto at = static_cast<std::size_t>(piece.first) * sizeof(float),
                   bytes = static_cast<std::size_t>(piece.count) * sizeof(float);
        if (mesh->rank > 0) {
            there->recv(mesh->rank - 1, slot, at, bytes);
            there->waitRecv(mesh->getTimeout());
        }
        add(piece);
        if (mesh->rank == last) continue;
        there->send(mesh->rank + 1, slot, at, bytes);
        ++sent;
    }
    for (; sent > 0; --sent) there->waitSend(mesh->getTimeout());
    if (mesh->size == 1) return;
    ::gloo::BroadcastOptions options(mesh);
    options.setTag(tag);
    options.setRoot(last);
    options.setOutput(static_cast<char*>(total.data<void>()), total.bytes());
    ::gloo::broadcast(options);
}

tl::unexpected<Error> gloo_error(const char* what, const std::exception& error) {
    return fail(Fault::world,
                "{} over Gloo failed: {}; another rank has died or its node "
                "is cut off, see the lines before this one",
                what, error.what());
}

std::unique_ptr<Communicator> make_gloo(std::shared_ptr<::gloo::Context> mesh, std::uint32_t number) {
    std::signal(SIGPIPE, SIG_IGN);
    return std::make_unique<GlooCommunicator>(std::move(mesh), number);
}

}  // namespace dp::trainer
