// SPDX-License-Identifier: Apache-2.0
//
// How long the passes of a step take in a pipeline whose chunks take unequally long, and which part of it the stages wait: each
// stage takes its passes in the order of its schedule, each as soon as what it needs is there. Nothing else takes time. Pure.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>

#include "trainer/training/pipeline_schedule.hpp"

namespace dp::trainer {

struct ChunkTime {
    double forward, backward;
};

// `chunks`: of a micro-batch, in the model's order; those of stage s are the s-th, the (s + stages)-th and so on. `of`: of any
// stage.
inline double time_of_passes(Passes of, std::span<const ChunkTime> chunks) {
    // From some micro-batches on, each further round of them takes the same time, and no less than the slowest stage works for it.
    // That stage need not hold up the others yet in the rounds that are gone through here.
    const std::int64_t few = 2 * of.stages + of.micro_batches % of.stages, some = few + 2 * of.stages;
    if (of.micro_batches > some) {
        const double rest = static_cast<double>(of.micro_batches - some) / static_cast<double>(2 * of.stages);
        of.micro_batches = few;
        const double shorter = time_of_passes(of, chunks);
        of.micro_batches = some;
        const double longer = time_of_passes(of, chunks);
        std::vector<double> of_stages(static_cast<std::size_t>(of.stages));
        for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk)
            of_stages[chunk % of_stages.size()] += chunks[chunk].forward + chunks[chunk].backward;
        const double round = static_cast<double>(2 * of.stages) * std::ranges::max(of_stages);
        return longer + rest * std::max(longer - shorter, round);
    }
    struct Worker {
        std::vector<Turn> turns;
        std::size_t next = 0;
        double free = 0;
    };
    std::vector<Worker> stages(static_cast<std::size_t>(of.stages));
    for (of.stage = 0; of.stage < of.stages; ++of.stage)
        stages[static_cast<std::size_t>(of.stage)].turns = turns_of(of);
    constexpr double kNotYet = -1;
    std::vector<double> forward(chunks.size() * static_cast<std::size_t>(of.micro_batches), kNotYet),
        backward = forward;  // when those passes end, by micro-batch and chunk
    const auto step = [&](std::size_t stage) {
        Worker& here = stages[stage];
        if (here.next == here.turns.size()) return false;
        const Turn& turn = here.turns[here.next];
        const std::size_t chunk = static_cast<std::size_t>(turn.chunk) * stages.size() + stage,
                          pass = static_cast<std::size_t>(turn.micro_batch) * chunks.size() + chunk;
        double ready = here.free;
        const auto waits_for = [&](double end) {
            ready = std::max(ready, end);
            return end == kNotYet;
        };
        if (turn.forward) {
            if (chunk > 0 && waits_for(forward[pass - 1])) return false;
            here.free = forward[pass] = ready + chunks[chunk].forward;
        }
        if (turn.backward) {
            if (chunk + 1 < chunks.size() && waits_for(backward[pass + 1])) return false;
            here.free = backward[pass] = std::max(ready, here.free) + chunks[chunk].backward;
        }
        ++here.next;
        return true;
    };
    for (bool moves = true; moves;) {
        moves = false;
        for (std::size_t stage = 0; stage < stages.size(); ++stage)
            while (step(stage)) moves = true;
    }
    return std::ranges::max(stages, {}, [](const Worker& one) { return one.free; }).free;
}

// The part of the time in which stages wait for each other, the mean of all. Where all chunks take as long, that of bubble_of().
inline double bubble_of(const Passes& of, std::span<const ChunkTime> chunks) {
    const double worked =
        std::accumulate(chunks.begin(), chunks.end(), 0.0,
                        [](double sum, const ChunkTime& one) { return sum + one.forward + one.backward; });
    return 1 - static_cast<double>(of.micro_batches) * worked /
                   (static_cast<double>(of.stages) * time_of_passes(of, chunks));
}

}  // namespace dp::trainer
