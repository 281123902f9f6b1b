// SPDX-License-Identifier: Apache-2.0
//
// How many layers each stage of a pipeline has, and how long the passes of a step then take.
#include "trainer/models/pipeline_split.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "trainer/training/pipeline_time.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;
using Layers = std::vector<std::int64_t>;

TEST(BalancedLayers, MakeTheSlowestStageAsFastAsItCanBe) {
    struct Case {
        std::int64_t layers, stages, chunks;
        SplitCosts costs;
        Layers split;
    };
    for (const auto& [layers, stages, chunks, costs, split] : {
             Case{12, 1, 1, {10, 1, 49}, {12}},
             {12, 2, 1, {10, 0, 0}, {6, 6}},
             {12, 2, 1, {10, 1, 49}, {8, 4}},        // 81 and 89; 9 and 3 would take 91
             {12, 2, 1, {10, 0, 50}, {8, 4}},        // 80 and 90, as 90 and 80: the later stage has it
             {12, 4, 1, {10, 0, 50}, {3, 4, 4, 1}},  // at least one, which takes 60 with the head
             {4, 4, 1, {10, 0, 500}, {1, 1, 1, 1}},  // there is no choice
             {7, 4, 1, {10, 0, 0}, {1, 2, 2, 2}},    // of equal stages the later ones have more
             {7, 4, 1, {10, 0, 1}, {2, 2, 2, 1}},    // but not the one with the head
             {8, 2, 1, {10, 70, 0}, {1, 7}},         // the embedding counts, too
             {12, 2, 2, {10, 1, 49}, {4, 3, 4, 1}},  // a stage's chunks alike: 30 and 59 on the last one
             {8, 2, 2, {10, 0, 20}, {2, 2, 3, 1}},   //
             {24, 4, 2, {10, 0, 32}, {3, 3, 3, 2, 4, 4, 4, 1}},
             {6, 3, 2, {10, 0, 99}, {1, 1, 1, 1, 1, 1}},
         })
        EXPECT_EQ(balanced_layers(layers, stages, chunks, costs), split)
            << layers << " layers, " << stages << " x " << chunks << ", head " << costs.head;
}

// The least of all ways, by trying them all.
TEST(BalancedLayers, HaveNoBetterWay) {
    for (std::int64_t stages = 2; stages < 5; ++stages)
        for (std::int64_t layers = stages; layers < 11; ++layers)
            for (const SplitCosts& costs : {SplitCosts{10, 0, 0}, {10, 3, 17}, {10, 25, 8}, {10, 0, 60}}) {
                const auto slowest = [&](const Layers& split) {
                    std::int64_t most = 0;
                    for (std::size_t stage = 0; stage < split.size(); ++stage)
                        most =
                            std::max(most, split[stage] * costs.layer + (stage == 0 ? costs.embedding : 0) +
                                               (stage + 1 == split.size() ? costs.head : 0));
                    return most;
                };
                std::int64_t least = slowest(even_layers(layers, stages));
                Layers split(static_cast<std::size_t>(stages));
                const std::function<void(std::size_t, std::int64_t)> try_all = [&](std::size_t stage,
                                                                                   std::int64_t left) {
                    if (stage + 1 == split.size()) {
                        split[stage] = left;
                        least = std::min(least, slowest(split));
                        return;
                    }
                    const auto behind = static_cast<std::int64_t>(split.size() - stage) - 1;
                    for (split[stage] = 1; split[stage] <= left - behind; ++split[stage])
                        try_all(stage + 1, left - split[stage]);
                };
                try_all(0, layers);
                const Layers chosen = balanced_layers(layers, stages, 1, costs);
                EXPECT_EQ(slowest(chosen), least) << layers << " layers, " << stages << " stages";
                EXPECT_EQ(std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0}), layers);
                EXPECT_GE(std::ranges::min(chosen), 1);
            }
}

GptShape gpt_124m() {
    GptShape shape{12, 768, 12, 1024, 50257};
    shape.layout.stages = 2;
    return shape;
}

// Of gpt 124M the head is worth 4.9 layers; recomputed layers cost a third more.
TEST(ChunkLayers, AreWhatTheLayoutWants) {
    GptShape shape = gpt_124m();
    const SplitCosts costs = split_costs(shape);
    EXPECT_EQ(costs.layer, 3 * (24 * 768 * 768 + 2 * 1024 * 768));
    EXPECT_EQ(costs.head, 3 * 2 * 768 * 50257);
    EXPECT_THAT(chunk_layers(shape), ElementsAre(8, 4));
    EXPECT_THAT(chunk_costs(shape),
                ElementsAre(8 * costs.layer + costs.embedding, 4 * costs.layer + costs.head));
    shape.vocabulary = 257;
    EXPECT_THAT(chunk_layers(shape), ElementsAre(6, 6));
    shape.vocabulary = 65536;
    EXPECT_THAT(chunk_layers(shape), ElementsAre(9, 3));
    shape.recompute = true;
    EXPECT_EQ(split_costs(shape).layer, costs.layer / 3 * 4);
    EXPECT_THAT(chunk_layers(shape), ElementsAre(8, 4));
    shape.layout.split.is_even = true;
    EXPECT_THAT(chunk_layers(shape), ElementsAre(6, 6));
    shape.layout.split.layers = {11, 1};
    EXPECT_THAT(chunk_layers(shape), ElementsAre(11, 1));
    shape.layout.stages = 1;
    EXPECT_THAT(chunk_layers(shape), ElementsAre(12));
}

TEST(LargestStages, AreTheEndsAndTheEarliestOfEachKind) {
    GptShape shape{22, 64, 4, 16, 64};
    shape.layout.stages = 8;
    shape.layout.split.layers = {2, 3, 3, 2, 3, 2, 4, 3};
    EXPECT_THAT(largest_stages(shape), ElementsAre(0, 1, 3, 6, 7));
    shape.layout.stages = 1;
    EXPECT_THAT(largest_stages(shape), ElementsAre(0));
    shape.layout.stages = 4;
    shape.layout.chunks = 2;
    EXPECT_THAT(largest_stages(shape), ElementsAre(0, 1, 2, 3)) << "the chunks 3 and 2, and 3 and 4";
}

constexpr auto kFlush = PipelineSchedule::one_forward_one_backward, kAll = PipelineSchedule::gpipe,
               kInterleaved = PipelineSchedule::interleaved;

std::vector<ChunkTime> times_of(const Layers& costs) {
    std::vector<ChunkTime> times;
    for (const std::int64_t cost : costs)
        times.push_back({static_cast<double>(cost), 2 * static_cast<double>(cost)});
    return times;
}

TEST(TimeOfPasses, IsThatOfThePapersWhereAllChunksTakeAsLong) {
    for (std::int64_t stages = 2; stages < 6; ++stages)
        for (std::int64_t micro_batches = stages; micro_batches < 40; micro_batches += stages)
            for (std::int64_t chunks = 1; chunks < 4; ++chunks)
                for (const PipelineSchedule schedule : {kFlush, kAll, kInterleaved}) {
                    if ((schedule == kInterleaved) != (chunks > 1)) continue;
                    const Passes passes{schedule, 0, stages, chunks, micro_batches};
                    const auto times = times_of(Layers(static_cast<std::size_t>(stages * chunks), 1));
                    EXPECT_NEAR(bubble_of(passes, times), bubble_of(stages, micro_batches, chunks), 1e-12)
                        << stages << " x " << chunks << ", " << micro_batches;
                }
}

TEST(TimeOfPasses, FollowsTheOrderOfTheStages) {
    struct Case {
        Passes passes;
        Layers costs;
        double time;
    };
    for (const auto& [passes, costs, time] : {
             Case{{kFlush, 0, 1, 1, 4}, {5}, 4 * 15.0},
             {{kFlush, 0, 2, 1, 2},
              {1, 4},
              1 + 2 * 12.0 + 2},  // the last stage begins after a pass, and a pass is left
             {{kFlush, 0, 2, 1, 2}, {4, 1}, 8 + 1 + 2 + 8 - 3 + 8.0},
             {{kFlush, 0, 2, 1, 1000}, {1, 4}, 1 + 1000 * 12.0 + 2},  // without going through all of them
             {{kAll, 0, 2, 1, 2}, {1, 4}, 1 + 8 + 16 + 2.0},
             {{kInterleaved, 0, 2, 2, 2}, {1, 1, 1, 1}, 2 * 2 * 3 + 3.0},
         })
        EXPECT_DOUBLE_EQ(time_of_passes(passes, times_of(costs)), time) << passes.micro_batches;
}

// GPT-2 774M on two stages, and chunks of all kinds: without the rounds that it does not go through it comes close to all of them.
TEST(TimeOfPasses, OfManyMicroBatchesIsNoLessThanTheSlowestStageWorks) {
    std::uint64_t random = 7;
    for (int i = 0; i < 200; ++i) {
        const std::int64_t stages = 2 + i % 3, chunks = 1 + i / 3 % 3, rounds = 8 + i % 5;
        Layers costs{10, 10, 10, 11};
        if (i > 0) {
            costs.clear();
            for (std::int64_t chunk = 0; chunk < stages * chunks; ++chunk) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                costs.push_back(10 + static_cast<std::int64_t>((random >> 33) % 6));
            }
        }
        const bool is_first = i == 0;
        const Passes passes{is_first || chunks > 1 ? kInterleaved : kFlush, 0, is_first ? 2 : stages,
                            is_first ? 2 : chunks, rounds * 8 * (is_first ? 2 : stages)};
        std::vector<std::int64_t> of_stages(static_cast<std::size_t>(passes.stages));
        for (std::size_t chunk = 0; chunk < costs.size(); ++chunk)
            of_stages[chunk % of_stages.size()] += 3 * costs[chunk];
        const double least =
            static_cast<double>(passes.micro_batches) * static_cast<double>(std::ranges::max(of_stages));
        const auto times = times_of(costs);
        EXPECT_GE(time_of_passes(passes, times), least);
        EXPECT_LT(time_of_passes(passes, times), 1.1 * least);
        EXPECT_GT(bubble_of(passes, times), 0);
    }
}

// With few micro-batches an interleaved schedule may gain nothing.
TEST(TimeOfPasses, IsLessWithABalancedSplit) {
    double ratio = 0, cases = 0;
    for (const std::int64_t stages : {2, 3, 4})
        for (const std::int64_t chunks : {1, 2})
            for (std::int64_t layers = stages * chunks; layers < 25; layers += 5)
                for (const std::int64_t head : {6, 25, 50, 80})
                    for (const std::int64_t rounds : {1, 2, 8}) {
                        const Passes passes{chunks > 1 ? kInterleaved : kFlush, 0, stages, chunks,
                                            rounds * stages};
                        const auto time = [&](Layers split) {
                            for (std::int64_t& cost : split) cost *= 10;
                            split.back() += head;
                            return time_of_passes(passes, times_of(split));
                        };
                        const double balanced = time(balanced_layers(layers, stages, chunks, {10, 0, head})),
                                     even = time(even_layers(layers, stages * chunks));
                        EXPECT_LT(balanced, chunks == 1 ? 1.001 * even : 1.05 * even)
                            << layers << " layers, " << stages << " x " << chunks << ", head " << head << ", "
                            << passes.micro_batches << " micro-batches";
                        ratio += even / balanced;
                        ++cases;
                    }
    EXPECT_GT(ratio / cases, 1.1);
}

}  // namespace
}  // namespace dp::trainer
