// SPDX-License-Identifier: Apache-2.0
//
// A world whose ranks are threads of one process: the training loop cannot tell it from Gloo, and a test
// needs no cluster. Works on tensors in host memory.
#pragma once

#include <algorithm>
#include <barrier>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/base/partition.hpp"
#include "trainer/parallel/bf16_sums.hpp"

namespace dp::trainer {

class ThreadWorld {
 public:
    explicit ThreadWorld(std::int64_t size)
        : size_(size),
          shown_(static_cast<std::size_t>(size)),
          meet_(size),
          messages_(static_cast<std::size_t>(2 * size * size)) {}

    std::int64_t size() const { return size_; }
    // The communicator of a rank, which one thread uses.
    std::unique_ptr<Communicator> member(std::int64_t rank) { return std::make_unique<Member>(*this, rank); }

    // Runs `rank_main(communicator)` as each rank and waits for all of them. No rank may return early.
    template <typename Main>
    void run(Main rank_main) {
        std::vector<std::thread> threads;
        for (std::int64_t rank = 0; rank < size_; ++rank) {
            threads.emplace_back([this, rank, &rank_main] {
                Member member(*this, rank);
                rank_main(member);
            });
        }
        for (auto& thread : threads) thread.join();
    }

 private:
    std::int64_t size_;
    std::vector<std::byte*> shown_;  // each rank's tensor
    std::barrier<> meet_;
    std::mutex mutex_;  // of the messages
    std::condition_variable arrived_;
    std::vector<std::deque<std::span<const std::byte>>>
        messages_;  // from each rank to each in each lane, in the sender's memory until they are received

    std::deque<std::span<const std::byte>>& messages(std::int64_t from, std::int64_t to, Lane lane) {
        return messages_[static_cast<std::size_t>((from * size_ + to) * 2 +
                                                  (lane == Lane::gradients ? 1 : 0))];
    }

    class Member final : public Communicator {
     public:
        Member(ThreadWorld& world, std::int64_t rank) : world_(world), rank_(rank) {}
        std::string_view name() const override { return "threads"; }
        std::int64_t rank() const override { return rank_; }
        std::int64_t size() const override { return world_.size_; }
        Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
            if (tensor.type() == Type::bf16) return bf16_sums_.all_reduce(*this, tensor, reduction);
            if (tensor.type() == Type::f32) reduce<float>(tensor, reduction);
            if (tensor.type() == Type::f64) reduce<double>(tensor, reduction);
            if (tensor.type() == Type::i64) reduce<std::int64_t>(tensor, reduction);
            return {};
        }
        // Everybody writes his part to all.
        Result<void> all_gather(const Tensor& tensor) override {
            const Shard mine = shard_of(tensor.elements(), rank_, size());
            const auto first = static_cast<std::size_t>(mine.first) * size_of(tensor.type()),
                       bytes = static_cast<std::size_t>(mine.count) * size_of(tensor.type());
            const std::byte* part = tensor.data<std::byte>() + first;
            world_.shown_[static_cast<std::size_t>(rank_)] = tensor.data<std::byte>();
            world_.meet_.arrive_and_wait();
            for (std::byte* shown : world_.shown_)
                if (shown + first != part) std::copy(part, part + bytes, shown + first);
            world_.meet_.arrive_and_wait();
            return {};
        }
        // Whoever reads more than its part gets NaN.
        Result<void> reduce_scatter(const Tensor& tensor) override {
            if (tensor.type() == Type::bf16) return bf16_sums_.reduce_scatter(*this, tensor);
            const Shard mine = shard_of(tensor.elements(), rank_, size());
            std::vector<float> sums(static_cast<std::size_t>(tensor.elements()),
                                    std::numeric_limits<float>::quiet_NaN());
            std::fill_n(sums.begin() + mine.first, mine.count, 0.0f);
            world_.shown_[static_cast<std::size_t>(rank_)] = tensor.data<std::byte>();
            world_.meet_.arrive_and_wait();
            for (std::byte* shown : world_.shown_)
                for (std::int64_t i = mine.first; i < mine.first + mine.count; ++i)
                    sums[static_cast<std::size_t>(i)] += reinterpret_cast<const float*>(shown)[i];
            world_.meet_.arrive_and_wait();  // all have read
            std::ranges::copy(sums, tensor.data<float>());
            return {};
        }
        Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
            world_.shown_[static_cast<std::size_t>(rank_)] = tensor.data<std::byte>();
            world_.meet_.arrive_and_wait();
            if (root != rank_)
                std::copy_n(world_.shown_[static_cast<std::size_t>(root)], tensor.bytes(),
                            tensor.data<std::byte>());
            world_.meet_.arrive_and_wait();
            return {};
        }

        Result<void> start_send(const Tensor& tensor, std::int64_t to, Lane lane) override {
            const std::lock_guard lock(world_.mutex_);
            world_.messages(rank_, to, lane).push_back({tensor.data<std::byte>(), tensor.bytes()});
            world_.arrived_.notify_all();
            return {};
        }
        Result<void> receive(const Tensor& tensor, std::int64_t from, Lane lane) override {
            std::unique_lock lock(world_.mutex_);
            auto& messages = world_.messages(from, rank_, lane);
            world_.arrived_.wait(lock, [&] { return !messages.empty(); });
            if (messages.front().size() != tensor.bytes())
                return fail(Fault::world, "a message of another size");
            std::ranges::copy(messages.front(), tensor.data<std::byte>());
            messages.pop_front();
            world_.arrived_.notify_all();
            return {};
        }
        Result<void> wait_send(const Tensor& tensor) override {
            std::unique_lock lock(world_.mutex_);
            world_.arrived_.wait(lock, [&] {
                for (std::int64_t to = 0; to < size(); ++to)
                    for (const Lane lane : {Lane::activations, Lane::gradients})
                        for (const auto& sent : world_.messages(rank_, to, lane))
                            if (sent.data() == tensor.data<std::byte>()) return false;
                return true;
            });
            return {};
        }

     private:
        ThreadWorld& world_;
        std::int64_t rank_;
        Bf16Sums bf16_sums_;

        // Everybody shows his numbers; each rank adds up one part of them, in the order of ranks, and writes
        // it to all.
        template <typename T>
        void reduce(const Tensor& tensor, Reduction reduction) {
            const auto count = tensor.elements();
            const auto first = count * rank_ / size(), last = count * (rank_ + 1) / size();
            std::vector<T> total(static_cast<std::size_t>(last - first));
            world_.shown_[static_cast<std::size_t>(rank_)] = tensor.data<std::byte>();
            world_.meet_.arrive_and_wait();
            for (std::size_t rank = 0; rank < world_.shown_.size(); ++rank) {
                const T* part = reinterpret_cast<const T*>(world_.shown_[rank]) + first;
                for (std::size_t i = 0; i < total.size(); ++i) {
                    const bool add = rank > 0 && reduction == Reduction::sum;
                    total[i] = add ? total[i] + part[i] : (rank == 0 ? part[i] : std::max(total[i], part[i]));
                }
            }
            world_.meet_.arrive_and_wait();  // all have read: now the parts may be overwritten, on every rank
            for (auto* shown : world_.shown_)
                std::copy(total.begin(), total.end(), reinterpret_cast<T*>(shown) + first);
            world_.meet_.arrive_and_wait();
        }
    };
};

}  // namespace dp::trainer
