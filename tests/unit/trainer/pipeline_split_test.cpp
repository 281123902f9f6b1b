// SPDX-License-Identifier: Apache-2.0
//
// How many layers each stage of a pipeline has, and how long the passes of a step then take.
#include "trainer/models/pipeline_split.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>

#include "trainer/training/pipeline_time.hpp"

namespace dp::trainer {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using Layers = std::vector<std::int64_t>;

// Of layers that are all alike.
struct Costs {
    std::int64_t layer, embedding, head;

    StageCosts of(std::int64_t layers) const {
        return {Layers(static_cast<std::size_t>(layers), layer), embedding, head};
    }
};

TEST(BalancedLayers, MakeTheSlowestStageAsFastAsItCanBe) {
    struct Case {
        std::int64_t layers, stages, chunks;
        Costs costs;
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
        EXPECT_EQ(balanced_layers(stages, chunks, costs.of(layers)), split)
            << layers << " layers, " << stages << " x " << chunks << ", head " << costs.head;
}

// The least of all ways, by trying them all.
TEST(BalancedLayers, HaveNoBetterWay) {
    for (std::int64_t stages = 2; stages < 5; ++stages)
        for (std::int64_t layers = stages; layers < 11; ++layers)
            for (const Costs& costs : {Costs{10, 0, 0}, {10, 3, 17}, {10, 25, 8}, {10, 0, 60}}) {
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
                const Layers chosen = balanced_layers(stages, 1, costs.of(layers));
                EXPECT_EQ(slowest(chosen), least) << layers << " layers, " << stages << " stages";
                EXPECT_EQ(std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0}), layers);
                EXPECT_GE(std::ranges::min(chosen), 1);
            }
}

// Of chunks it is only nearly the least. The first layers are frozen, and the last chunk has a head.
TEST(BalancedLayers, OfChunksHaveHardlyABetterWay) {
    double worst = 1;
    std::int64_t cases = 0, best = 0;
    for (const auto& [stages, chunks] :
         {std::pair<std::int64_t, std::int64_t>{2, 2}, {3, 2}, {2, 3}, {4, 2}, {2, 4}, {3, 3}})
        for (std::int64_t layers = stages * chunks; layers < 13; ++layers)
            for (std::int64_t frozen = 0; frozen < layers; ++frozen)
                for (const std::int64_t head : {0, 10, 30, 60, 99, 150}) {
                    StageCosts costs = Costs{30, 1, head}.of(layers);
                    std::fill_n(costs.layers.begin(), frozen, 10);
                    const auto slowest = [&](const Layers& split) {
                        Layers of_stages(static_cast<std::size_t>(stages));
                        of_stages.front() = costs.embedding;
                        of_stages.back() += costs.head;
                        auto layer = costs.layers.begin();
                        for (std::size_t place = 0; place < split.size(); ++place)
                            for (std::int64_t i = 0; i < split[place]; ++i)
                                of_stages[place % of_stages.size()] += *layer++;
                        return std::ranges::max(of_stages);
                    };
                    std::int64_t least = slowest(even_layers(layers, stages * chunks));
                    Layers split(static_cast<std::size_t>(stages * chunks));
                    const std::function<void(std::size_t, std::int64_t)> try_all = [&](std::size_t place,
                                                                                       std::int64_t left) {
                        const auto behind = static_cast<std::int64_t>(split.size() - place) - 1;
                        if (behind == 0) {
                            split[place] = left;
                            least = std::min(least, slowest(split));
                            return;
                        }
                        for (split[place] = 1; split[place] <= left - behind; ++split[place])
                            try_all(place + 1, left - split[place]);
                    };
                    try_all(0, layers);
                    const Layers chosen = balanced_layers(stages, chunks, costs);
                    EXPECT_EQ(std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0}), layers);
                    EXPECT_GE(std::ranges::min(chosen), 1);
                    const double ratio = static_cast<double>(slowest(chosen)) / static_cast<double>(least);
                    EXPECT_LE(ratio, 1.1)
                        << layers << " layers, " << frozen << " frozen, " << stages << " x " << chunks
                        << ", head " << head << ": " << ::testing::PrintToString(chosen);
                    worst = std::max(worst, ratio);
                    ++cases;
                    best += ratio == 1;
                }
    EXPECT_GT(static_cast<double>(best), 0.99 * static_cast<double>(cases));
    std::printf("%ld of %ld are the best way, the worst takes %.3f times as long\n", best, cases, worst);
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
    const std::int64_t layer = 24 * 768 * 768 + 2 * 1024 * 768, head = 2 * 768 * 50257;
    EXPECT_THAT(costs.layers, Each(PassFlops{layer, 2 * layer}));
    EXPECT_EQ(costs.head, (PassFlops{head, 2 * head}));
    EXPECT_THAT(chunk_layers(shape), ElementsAre(8, 4));
    EXPECT_THAT(chunk_costs(shape), ElementsAre(PassFlops{8 * layer + costs.embedding.forward,
                                                          16 * layer + costs.embedding.backward},
                                                PassFlops{4 * layer + head, 8 * layer + 2 * head}));
    shape.vocabulary = 257;
    EXPECT_THAT(chunk_layers(shape), ElementsAre(6, 6));
    shape.vocabulary = 65536;
    EXPECT_THAT(chunk_layers(shape), ElementsAre(9, 3));
    shape.recompute = true;
    EXPECT_THAT(split_costs(shape).layers, Each(PassFlops{layer, 3 * layer}));
    EXPECT_THAT(chunk_layers(shape), ElementsAre(8, 4));
    shape.layout.split.is_even = true;
    EXPECT_THAT(chunk_layers(shape), ElementsAre(6, 6));
    shape.layout.split.layers = {11, 1};
    EXPECT_THAT(chunk_layers(shape), ElementsAre(11, 1));
    shape.layout.stages = 1;
    EXPECT_THAT(chunk_layers(shape), ElementsAre(12));
}

// What a frozen layer saves, by what is frozen of a model of four layers: 16 c² of FLOPs in both linear layers of each.
TEST(SplitCosts, CountOnlyWhatIsComputed) {
    GptShape shape{4, 64, 4, 16, 100};
    shape.layout.stages = 2;
    const SplitCosts all = split_costs(shape);
    const std::int64_t forward = all.layers[0].forward, inputs = forward + 2 * 16 * 64, learns = 2 * forward,
                       attention = 8 * 64 * 64, linear = 16 * 64 * 64, head = 2 * 64 * 100;
    ASSERT_EQ(forward, attention + linear + 2 * 16 * 64);
    struct Case {
        std::vector<std::string> freeze;
        Layers backward;  // of each layer
        std::int64_t embedding, head;
        Layers split;
    };
    for (const auto& [freeze, backward, embedding, of_head, split] : {
             Case{{}, {learns, learns, learns, learns}, 128, 2 * head, {2, 2}},
             {{"wte"}, {learns, learns, learns, learns}, 128, head, {2, 2}},
             {{"wpe"}, {learns, learns, learns, learns}, 128, 2 * head, {2, 2}},
             // Something below still learns.
             {{"h.0"}, {inputs, learns, learns, learns}, 128, 2 * head, {2, 2}},
             {{"h.[0-2]"}, {inputs, inputs, inputs, learns}, 128, 2 * head, {2, 2}},
             {{"h.*.attn"},
              {inputs + linear, inputs + linear, inputs + linear, inputs + linear},
              128,
              2 * head,
              {2, 2}},
             // A bias that learns is made with the weight's gradient.
             {{"h.*.weight"}, {learns, learns, learns, learns}, 128, 2 * head, {2, 2}},
             {{"h.1.ln_1", "h.1.attn.c_attn.bias"}, {learns, learns, learns, learns}, 128, 2 * head, {2, 2}},
             // Nothing below does.
             {{"wte", "wpe"}, {learns, learns, learns, learns}, 0, head, {2, 2}},
             {{"wte", "wpe", "h.0", "h.1"}, {0, 0, learns, learns}, 0, head, {3, 1}},
             {{"wt?", "wp*", "h.[0-2]", "h.3.mlp"}, {0, 0, 0, inputs + attention}, 0, head, {3, 1}},
             {{"w*", "h.0.attn", "h.0.mlp", "h.0.ln_2"}, {inputs, learns, learns, learns}, 0, head, {2, 2}},
             {{"w*", "h"}, {0, 0, 0, 0}, 0, head, {2, 2}},
         }) {
        shape.freeze = freeze;
        const SplitCosts costs = split_costs(shape);
        Layers found;
        for (const PassFlops& layer : costs.layers) {
            EXPECT_EQ(layer.forward, forward);
            found.push_back(layer.backward);
        }
        EXPECT_EQ(found, backward) << freeze.front();
        EXPECT_EQ(costs.embedding.backward, embedding) << freeze.front();
        EXPECT_EQ(costs.head, (PassFlops{head, of_head})) << freeze.front();
        EXPECT_EQ(chunk_layers(shape), split) << freeze.front();
    }
    shape.freeze = {"wte", "wpe", "h.0", "h.1"};
    shape.recompute = true;  // what has no backward pass is not recomputed
    EXPECT_EQ(split_costs(shape).layers[1].backward, 0);
    EXPECT_EQ(split_costs(shape).layers[2].backward, 3 * forward);
    shape.freeze = {};
    shape.recompute = false;
    shape.lora_rank = 2;  // the gradient of an adapter is made from the weight's
    const PassFlops adapted{forward, inputs + 6 * 64 * 64};
    EXPECT_THAT(split_costs(shape).layers, Each(adapted));
    shape.freeze = {"h.0", "h.[12].*.lora_A"};
    EXPECT_THAT(split_costs(shape).layers, ElementsAre(PassFlops{forward, 0}, adapted, adapted, adapted));
    shape.freeze = {"h.0.attn.c_attn.lora_?", "h.2"};
    EXPECT_THAT(split_costs(shape).layers,
                ElementsAre(PassFlops{forward, 0}, adapted, PassFlops{forward, inputs}, adapted));
}

// GPT-2 124M of which the first eight layers are frozen with the embedding: they cost a third.
TEST(ChunkLayers, AreMoreWhereFrozenOnesCostLess) {
    GptShape shape = gpt_124m();
    shape.freeze = {"wte", "wpe", "h.[0-7]"};
    EXPECT_THAT(chunk_layers(shape), ElementsAre(10, 2))
        << "14.1 and 9.3 forward passes; 9 and 3 are 11 and 12.3";
    shape.layout.chunks = 2;
    shape.layout.stages = 2;
    Layers chunks = chunk_layers(shape);
    EXPECT_EQ(std::accumulate(chunks.begin(), chunks.end(), std::int64_t{0}), 12);
    EXPECT_GT(chunks[0], chunks[2]) << "frozen layers are in the first chunks";
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
                        const double balanced =
                                         time(balanced_layers(stages, chunks, Costs{10, 0, head}.of(layers))),
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
