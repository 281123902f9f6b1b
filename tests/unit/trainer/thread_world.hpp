// SPDX-License-Identifier: Apache-2.0
//
// A world whose ranks are threads of one process: the training loop cannot tell it from Gloo, and a test
// needs no cluster. Works on tensors in host memory.
#ifndef TESTS_UNIT_TRAINER_THREAD_WORLD_HPP
#define TESTS_UNIT_TRAINER_THREAD_WORLD_HPP

#include <algorithm>
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include "trainer/parallel/communicator.hpp"

namespace dp::trainer {

class ThreadWorld {
 public:
    explicit ThreadWorld(std::int64_t size)
        : size_(size), parts_(static_cast<std::size_t>(size)), meet_(size) {}

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
    std::vector<std::vector<std::byte>> parts_;
    std::barrier<> meet_;

    class Member final : public Communicator {
     public:
        Member(ThreadWorld& world, std::int64_t rank) : world_(world), rank_(rank) {}
        std::string_view name() const override { return "threads"; }
        std::int64_t rank() const override { return rank_; }
        std::int64_t size() const override { return world_.size_; }
        Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
            auto& mine = world_.parts_[static_cast<std::size_t>(rank_)];
            mine.assign(tensor.data<std::byte>(), tensor.data<std::byte>() + tensor.bytes());
            world_.meet_.arrive_and_wait();
            if (tensor.type() == Type::f32) reduce<float>(tensor, reduction);
            if (tensor.type() == Type::f64) reduce<double>(tensor, reduction);
            if (tensor.type() == Type::i64) reduce<std::int64_t>(tensor, reduction);
            world_.meet_.arrive_and_wait();  // nobody overwrites his part while another still reads it
            return {};
        }

     private:
        ThreadWorld& world_;
        std::int64_t rank_;

        template <typename T>
        void reduce(const Tensor& tensor, Reduction reduction) {
            for (std::int64_t i = 0; i < tensor.elements(); ++i) {
                T total{};
                for (std::size_t rank = 0; rank < world_.parts_.size(); ++rank) {
                    T value;
                    std::memcpy(&value, world_.parts_[rank].data() + static_cast<std::size_t>(i) * sizeof(T),
                                sizeof(T));
                    total = rank == 0
                                ? value
                                : (reduction == Reduction::sum ? total + value : std::max(total, value));
                }
                tensor.data<T>()[i] = total;
            }
        }
    };
};

}  // namespace dp::trainer

#endif
