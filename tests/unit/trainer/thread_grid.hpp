// SPDX-License-Identifier: Apache-2.0
//
// A world of threads that divide a model: groups of ranks in the order of the plugin, each a ThreadWorld.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/model_parallel.hpp"
#include "thread_world.hpp"
#include "trainer/base/ranks.hpp"

namespace dp::trainer {

class ThreadGrid {
 public:
    explicit ThreadGrid(const ModelParallel& shape) : shape_(shape), world_(size()) {
        for (const Dimension dimension : {Dimension::data, Dimension::tensor})
            for (std::uint32_t rank = 0; rank < size(); ++rank)
                if (shape.first_of(dimension, rank) == rank) groups_.emplace_back(shape.size(dimension));
    }

    std::uint32_t size() const { return shape_.tensor * shape_.data; }

    // Runs `rank_main(ranks)` as each rank and waits for all of them. No rank may return early.
    template <typename Main>
    void run(Main rank_main) {
        std::vector<std::thread> threads;
        for (std::uint32_t rank = 0; rank < size(); ++rank)
            threads.emplace_back([this, rank, &rank_main] {
                const auto world = world_.member(rank), data = member(Dimension::data, rank),
                           tensor = member(Dimension::tensor, rank);
                rank_main(Ranks(*world, *data, *tensor));
            });
        for (auto& thread : threads) thread.join();
    }

 private:
    ModelParallel shape_;
    ThreadWorld world_;
    std::deque<ThreadWorld> groups_;  // of data, by their first rank, then of tensor

    std::unique_ptr<Communicator> member(Dimension dimension, std::uint32_t rank) {
        const std::uint32_t group = dimension == Dimension::data
                                        ? shape_.rank_in(Dimension::tensor, rank)
                                        : shape_.tensor + shape_.rank_in(Dimension::data, rank);
        return groups_[group].member(shape_.rank_in(dimension, rank));
    }
};

}  // namespace dp::trainer
