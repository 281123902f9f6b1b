// SPDX-License-Identifier: Apache-2.0
//
// A world of threads that divide a model: groups of ranks in the order of the plugin, each a ThreadWorld.
#pragma once

#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/model_parallel.hpp"
#include "thread_world.hpp"
#include "trainer/base/ranks.hpp"

namespace dp::trainer {

class ThreadGrid {
 public:
    explicit ThreadGrid(const ModelParallel& shape) : shape_(shape), world_(size()) {
        for (const Dimension dimension : {Dimension::tensor, Dimension::data, Dimension::pipeline})
            for (std::uint32_t rank = 0; rank < size(); ++rank)
                if (shape.first_of(dimension, rank) == rank)
                    groups_[{dimension, rank}] = std::make_unique<ThreadWorld>(shape.size(dimension));
    }

    std::uint32_t size() const { return shape_.tensor * shape_.data * shape_.pipeline; }

    // Runs `rank_main(ranks)` as each rank and waits for all of them. No rank may return early.
    template <typename Main>
    void run(Main rank_main) {
        std::vector<std::thread> threads;
        for (std::uint32_t rank = 0; rank < size(); ++rank)
            threads.emplace_back([this, rank, &rank_main] {
                const auto world = world_.member(rank), data = member(Dimension::data, rank),
                           tensor = member(Dimension::tensor, rank),
                           pipeline = member(Dimension::pipeline, rank);
                rank_main(Ranks(*world, *data, *tensor, *pipeline));
            });
        for (auto& thread : threads) thread.join();
    }

 private:
    ModelParallel shape_;
    ThreadWorld world_;
    std::map<std::pair<Dimension, std::uint32_t>, std::unique_ptr<ThreadWorld>>
        groups_;  // by their first rank

    std::unique_ptr<Communicator> member(Dimension dimension, std::uint32_t rank) {
        return groups_.at({dimension, shape_.first_of(dimension, rank)})
            ->member(shape_.rank_in(dimension, rank));
    }
};

}  // namespace dp::trainer
