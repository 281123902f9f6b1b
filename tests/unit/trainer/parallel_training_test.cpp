// SPDX-License-Identifier: Apache-2.0
//
// Trainings of gpt by ranks that divide it learn what one rank learns.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "saved_training.hpp"
#include "thread_grid.hpp"
#include "trainer/commands/parallel_choice.hpp"
#include "trainer/models/freezing.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kGlobalBatch = 16;

ModelShape gpt_shape(float dropout) {
    ModelShape shape;
    shape.gpt = {5, 16, 4, 8, 29};
    shape.gpt.hidden_dropout = shape.gpt.attention_dropout = dropout;
    return shape;
}

Dataset text_set() {
    Random random(9, 0);
    const auto split = [&](std::int64_t count) {
        std::vector<std::uint16_t> tokens;
        for (std::int64_t i = 0; i < count * 8 + 1; ++i)
            tokens.push_back(
                static_cast<std::uint16_t>(i % 3 == 0 ? random.below(29) : (tokens.back() * 7 + 3) % 29));
        Split made;
        made.count = count;
        made.features = Matrix::of<std::uint16_t>(Type::u16, 8, tokens);
        made.targets = {Type::u16, 8, {}};
        made.next_is_target = true;
        return made;
    };
    return {split(640), split(37), "made up"};
}

struct Trained {
    std::vector<double> losses, norms;  // of each step
    Outcome outcome;
};

std::vector<Trained> train_divided(const ModelParallel& parallel, Settings settings, float dropout = 0,
                                   bool recompute = false, std::vector<std::string> freeze = {},
                                   std::int64_t document_begins = -1) {
    const ModelInfo& info = *find_model("gpt");
    if (parallel.pipeline > 1) settings.accumulate = std::max<std::int64_t>(settings.accumulate, 4);
    settings.batch = kGlobalBatch / parallel.data / settings.accumulate;
    settings.log_every = 1;
    const Dataset data = text_set();
    ThreadGrid grid(parallel);
    std::vector<Trained> all(grid.size());
    grid.run([&](const Ranks& ranks) {
        const auto device = open_cpu(1);
        ModelShape shape = gpt_shape(dropout);
        shape.gpt.layout = layout_of(parallel, ranks.world.rank(), settings);
        shape.gpt.recompute = recompute;
        shape.gpt.document_begins = document_begins;
        shape.freeze = freeze;
        const auto model = make_model(info, shape);
        Seen seen;
        auto outcome = train(info, *model, data, settings, *device, ranks, seen);
        ASSERT_TRUE(outcome) << outcome.error().message;
        Trained& mine = all[static_cast<std::size_t>(ranks.world.rank())];
        for (const LogReport& log : seen.logs) {
            mine.losses.push_back(log.loss);
            mine.norms.push_back(log.gradient_norm);
        }
        mine.outcome = *std::move(outcome);
    });
    return all;
}

Settings hundred_steps() {
    Settings settings;
    settings.epochs = std::nullopt;
    settings.max_steps = 100;
    settings.rate.rate = 3e-3f;
    settings.weight_decay = 0.1;
    settings.clip = 1.0;
    return settings;
}

struct DividedInto {
    ModelParallel ranks;
    bool divides_tokens = false;  // sequence parallel
};

std::vector<DividedInto> shapes() {
    std::vector<DividedInto> all;
    for (const std::uint32_t tensor : {1, 2, 4})
        for (const std::uint32_t data : {1, 2, 4})
            for (const std::uint32_t stages : {1, 2, 4}) {
                if (tensor * data * stages > 8) continue;
                all.push_back({{tensor, data, stages}});
                if (tensor > 1) all.push_back({{tensor, data, stages}, true});
            }
    return all;
}

struct ParallelTraining : ::testing::TestWithParam<DividedInto> {
    std::vector<Trained> train_shape(Settings settings, float dropout = 0) const {
        settings.sequence_parallel = GetParam().divides_tokens;
        return train_divided(GetParam().ranks, settings, dropout);
    }
};

TEST_P(ParallelTraining, HasTheLossesOfOneRank) {
    for (const bool drops : {false, true}) {
        Settings settings = hundred_steps();
        settings.accumulate = drops ? 2 : 1;
        const float dropout = drops ? 0.1f : 0;
        const Trained one = train_divided({1, 1, 1}, settings, dropout).front();
        ASSERT_EQ(one.losses.size(), 100u);
        EXPECT_LT(one.losses.back(), one.losses.front() * 0.8) << "it learns nothing that could go wrong";
        for (const Trained& rank : train_shape(settings, dropout)) {
            ASSERT_EQ(rank.losses.size(), one.losses.size());
            for (std::size_t step = 0; step < one.losses.size(); ++step)
                ASSERT_NEAR(rank.losses[step] / one.losses[step], 1, 1e-5) << "step " << step + 1;
            for (std::size_t step = 0; step < 3; ++step)
                EXPECT_NEAR(rank.norms[step] / one.norms[step], 1, 1e-5) << "step " << step + 1;
            EXPECT_NEAR(rank.outcome.last.test_loss / one.outcome.last.test_loss, 1, 1e-5);
            EXPECT_TRUE(rank.outcome.equal_on_all_ranks);
            EXPECT_EQ(rank.outcome.parameters.size(), one.outcome.parameters.size());
        }
    }
}

TEST_P(ParallelTraining, LearnsTheSameToTheBitWithAShardedOptimizer) {
    Settings settings = hundred_steps();
    settings.max_steps = 20;
    const Trained whole = train_shape(settings).front();
    settings.shard_optimizer = true;
    for (const Trained& rank : train_shape(settings)) {
        EXPECT_EQ(rank.outcome.parameters_hash, whole.outcome.parameters_hash);
        EXPECT_EQ(rank.losses, whole.losses);
    }
}

// With Adam, a parameter whose gradient is 0 up to rounding (the biases of keys) goes where the rounding says.
TEST_P(ParallelTraining, LearnsTheParametersOfOneRank) {
    Settings settings = hundred_steps();
    settings.optimizer = Optimization::sgd;
    settings.rate.rate = 0.05f;
    settings.max_steps = 30;
    const Trained one = train_divided({1, 1, 1}, settings).front();
    const Trained divided = train_shape(settings).front();
    ASSERT_EQ(divided.outcome.parameters.size(), one.outcome.parameters.size());
    for (std::size_t i = 0; i < one.outcome.parameters.size(); ++i)
        ASSERT_NEAR(divided.outcome.parameters[i], one.outcome.parameters[i], 1e-5) << i;
}

// As close to one rank as bf16 is to fp32: a divided layer's sum is of parts that are rounded. What is learnt stays equal on all ranks.
TEST_P(ParallelTraining, LearnsInBf16WhatOneRankLearns) {
    Settings settings = hundred_steps();
    const Trained wide = train_divided({1, 1, 1}, settings, 0.1f).front();
    settings.precision = Precision::bf16;
    const Trained one = train_divided({1, 1, 1}, settings, 0.1f).front();
    for (const Trained& rank : train_shape(settings, 0.1f)) {
        ASSERT_EQ(rank.losses.size(), 100u);
        double furthest = 0, from_wide = 0;
        for (std::size_t step = 0; step < one.losses.size(); ++step) {
            furthest = std::max(furthest, std::abs(rank.losses[step] / one.losses[step] - 1));
            from_wide = std::max(from_wide, std::abs(rank.losses[step] / wide.losses[step] - 1));
        }
        EXPECT_LT(furthest, 0.005);
        EXPECT_LT(from_wide, 0.01);
        EXPECT_GT(from_wide, 1e-5) << "is that bf16?";
        EXPECT_NEAR(rank.outcome.last.test_loss / one.outcome.last.test_loss, 1, 0.01);
        EXPECT_TRUE(rank.outcome.equal_on_all_ranks);
        RecordProperty("furthest", std::to_string(furthest));
    }
}

// In whichever order the micro-batches go, and with a layer's activations made twice.
TEST(PipelineTraining, HasTheSameBitsWithEachSchedule) {
    Settings settings = hundred_steps();
    settings.max_steps = 20;
    settings.accumulate = 8;
    const auto one = train_divided({1, 1, 1}, settings, 0.1f).front();
    const auto hash_with = [&](PipelineSchedule schedule, bool recompute, std::int64_t virtual_stages = 1) {
        settings.pipeline_schedule = schedule;
        settings.virtual_stages = virtual_stages;
        const Trained trained = train_divided({1, 1, 3}, settings, 0.1f, recompute).front();
        EXPECT_NEAR(trained.losses.back() / one.losses.back(), 1, 1e-5);
        return trained.outcome.parameters_hash;
    };
    const auto hash = hash_with(PipelineSchedule::one_forward_one_backward, false);
    EXPECT_EQ(hash_with(PipelineSchedule::gpipe, false), hash);
    EXPECT_EQ(hash_with(PipelineSchedule::gpipe, true), hash);
    EXPECT_EQ(hash_with(PipelineSchedule::one_forward_one_backward, true), hash);
}

// Where each stage has several runs of layers, it learns the same to the bit as where it has one.
TEST(PipelineTraining, HasTheSameBitsWithInterleavedStages) {
    for (const ModelParallel& parallel : {ModelParallel{1, 1, 2}, {2, 2, 2}}) {
        Settings settings = hundred_steps();
        settings.max_steps = 20;
        settings.clip = std::nullopt;  // the stages add up the norm of other layers each
        settings.accumulate = 8 / parallel.data;
        settings.sequence_parallel = settings.shard_optimizer = parallel.tensor > 1;
        const auto plain = train_divided(parallel, settings, 0.1f).front();
        settings.pipeline_schedule = PipelineSchedule::interleaved;
        settings.virtual_stages = 2;
        for (const bool recompute : {false, true})
            for (const Trained& rank : train_divided(parallel, settings, 0.1f, recompute)) {
                EXPECT_EQ(rank.outcome.parameters_hash, plain.outcome.parameters_hash);
                EXPECT_EQ(rank.losses, plain.losses);
                EXPECT_NEAR(rank.norms.back() / plain.norms.back(), 1, 1e-6);
                EXPECT_EQ(rank.outcome.last.test_loss, plain.outcome.last.test_loss);
            }
    }
}

// However the layers are divided among the stages.
TEST(PipelineTraining, HasTheSameBitsWithAnySplit) {
    Settings settings = hundred_steps();
    settings.max_steps = 20;
    settings.clip = std::nullopt;  // the stages add up the norm of other layers each
    for (const ModelParallel& parallel : {ModelParallel{1, 1, 2}, {2, 1, 2}}) {
        std::set<std::uint64_t> hashes;
        for (const PipelineSplit& split : {PipelineSplit{}, {true, {}}, {false, {4, 1}}, {false, {1, 4}}}) {
            settings.pipeline_split = split;
            for (const Trained& rank : train_divided(parallel, settings, 0.1f))
                hashes.insert(rank.outcome.parameters_hash);
        }
        settings.pipeline_schedule = PipelineSchedule::interleaved;
        settings.virtual_stages = 2;
        settings.pipeline_split.layers = {1, 2, 1, 1};
        hashes.insert(train_divided(parallel, settings, 0.1f).front().outcome.parameters_hash);
        settings.pipeline_schedule = PipelineSchedule::one_forward_one_backward;
        settings.virtual_stages = 1;
        EXPECT_EQ(hashes.size(), 1u);
    }
}

// With documents that begin within its sequences.
TEST(DividedTraining, LearnsOfDocumentsWhatOneRankLearns) {
    Settings settings = hundred_steps();
    settings.max_steps = 20;
    const auto of = [&](const ModelParallel& parallel, std::int64_t begins, bool recompute = false) {
        return train_divided(parallel, settings, 0, recompute, {}, begins).front();
    };
    const Trained one = of({1, 1, 1}, 5), whole = of({1, 1, 1}, -1);
    EXPECT_GT(std::abs(one.losses.back() / whole.losses.back() - 1), 1e-4) << "they make no difference";
    EXPECT_EQ(of({1, 1, 1}, 5, true).outcome.parameters_hash, one.outcome.parameters_hash);
    const Trained divided = of({2, 2, 2}, 5);
    for (std::size_t step = 0; step < one.losses.size(); ++step)
        ASSERT_NEAR(divided.losses[step] / one.losses[step], 1, 1e-5) << "step " << step + 1;
    EXPECT_NEAR(divided.outcome.last.test_loss / one.outcome.last.test_loss, 1, 1e-5);
}

// What is gathered again has the bits of what was gathered first.
TEST(SequenceParallelTraining, HasTheSameBitsWithEachScheduleAndWhereLayersAreRecomputed) {
    Settings settings = hundred_steps();
    settings.max_steps = 20;
    settings.sequence_parallel = true;
    const auto hash_with = [&](PipelineSchedule schedule, bool recompute) {
        settings.pipeline_schedule = schedule;
        return train_divided({2, 1, 2}, settings, 0.1f, recompute).front().outcome.parameters_hash;
    };
    const auto hash = hash_with(PipelineSchedule::one_forward_one_backward, false);
    EXPECT_EQ(hash_with(PipelineSchedule::one_forward_one_backward, true), hash);
    EXPECT_EQ(hash_with(PipelineSchedule::gpipe, true), hash);
}

// The sums are the same to the bit where they are made in the order of the ranks, and so are the first step's loss and all gradients
// but those of the norms, which are now sums of sums: from the second step on the rounding differs.
TEST(SequenceParallelTraining, DiffersByTheRoundingOfTheNormsAlone) {
    Settings settings = hundred_steps();
    settings.max_steps = 20;
    settings.clip = std::nullopt;  // the norm of all gradients would carry the rounding to all of them
    const auto both = [&](const std::vector<std::string>& freeze) {
        std::vector<Trained> two;
        for (const bool divides_tokens : {false, true}) {
            settings.sequence_parallel = divides_tokens;
            two.push_back(train_divided({2, 2, 1}, settings, 0.1f, false, freeze).front());
        }
        return two;
    };
    const auto all = both({});
    EXPECT_EQ(all[1].losses.front(), all[0].losses.front());
    EXPECT_NE(all[1].outcome.parameters_hash, all[0].outcome.parameters_hash);
    const auto frozen = both({"*.ln_*", "ln_f"});
    EXPECT_EQ(frozen[1].losses, frozen[0].losses);
    EXPECT_EQ(frozen[1].outcome.parameters_hash, frozen[0].outcome.parameters_hash);
}

TEST(PipelineTraining, TellsHowLongItsRanksWaited) {
    Settings settings = hundred_steps();
    settings.max_steps = 3;
    for (const Trained& rank : train_divided({1, 1, 2}, settings)) {
        ASSERT_TRUE(rank.outcome.bubble);
        EXPECT_GT(*rank.outcome.bubble, 0);
        EXPECT_LT(*rank.outcome.bubble, 1);
    }
    EXPECT_FALSE(train_divided({2, 1, 1}, settings).front().outcome.bubble);
}

std::string name_of(const ::testing::TestParamInfo<DividedInto>& one) {
    const auto& [ranks, divides_tokens] = one.param;
    return "tensor" + std::to_string(ranks.tensor) + (divides_tokens ? "sequence" : "") + "data" +
           std::to_string(ranks.data) + "stages" + std::to_string(ranks.pipeline);
}
INSTANTIATE_TEST_SUITE_P(Shapes, ParallelTraining, ::testing::ValuesIn(shapes()), name_of);

// Ends after `steps`, with a checkpoint at each tenth; the later ones are taken away.
std::filesystem::path saved_at_ten(const Scratch& scratch, const ModelParallel& parallel, Settings settings) {
    settings.checkpoints.directory = scratch.path() / "saved";
    settings.checkpoints.every = 10;
    settings.checkpoints.keep = 5;
    (void)train_divided(parallel, settings);
    for (const std::int64_t step : checkpoints_in(settings.checkpoints.directory))
        if (step > 10) std::filesystem::remove_all(checkpoint_path(settings.checkpoints.directory, step));
    return settings.checkpoints.directory;
}

// Also what first and last stage both have, and what ranks of a layer divide.
TEST(DividedTraining, LearnsAroundWhatIsFrozen) {
    Settings settings = hundred_steps();
    settings.max_steps = 20;
    for (const auto& freeze :
         {std::vector<std::string>{"wte"}, {"h.0", "h.3.attn"}, {"wpe", "*.bias"}, {"h.4", "ln_f"}}) {
        const Trained one = train_divided({1, 1, 1}, settings, 0, false, freeze).front();
        for (const auto& [shape, divides_tokens] : {DividedInto{{2, 2, 1}},
                                                    {{1, 2, 2}},
                                                    {{2, 1, 2}},
                                                    {{1, 1, 4}},
                                                    {{2, 2, 1}, true},
                                                    {{2, 1, 2}, true}}) {
            settings.sequence_parallel = divides_tokens;
            for (const Trained& rank : train_divided(shape, settings, 0, false, freeze)) {
                ASSERT_EQ(rank.losses.size(), 20u);
                for (std::size_t step = 0; step < 20; ++step)
                    ASSERT_NEAR(rank.losses[step] / one.losses[step], 1, 1e-5)
                        << freeze.front() << ", step " << step + 1;
                EXPECT_TRUE(rank.outcome.equal_on_all_ranks);
            }
        }
    }
}

// What is before all that is learnt has no backward pass, also where its stage must pass a gradient on.
TEST(DividedTraining, LearnsBehindWhatIsFrozen) {
    Settings settings = hundred_steps();
    settings.max_steps = 20;
    const std::vector<std::string> freeze{"wte", "wpe", "h.0", "h.1.attn"};
    const Trained one = train_divided({1, 1, 1}, settings, 0, false, freeze).front();
    Settings ring = settings;
    ring.pipeline_schedule = PipelineSchedule::interleaved;
    ring.virtual_stages = 2;
    // The first chunk is all frozen, and its stage learns in its other one.
    ring.pipeline_split.layers = {1, 1, 2, 1};
    for (const bool recompute : {false, true})
        for (const auto& [ranks, given] : {std::pair{ModelParallel{2, 2, 1}, settings},
                                           {{1, 2, 2}, settings},
                                           {{2, 1, 2}, settings},
                                           {{1, 1, 2}, ring}})
            for (const Trained& rank : train_divided(ranks, given, 0, recompute, freeze)) {
                ASSERT_EQ(rank.losses.size(), 20u);
                for (std::size_t step = 0; step < 20; ++step)
                    ASSERT_NEAR(rank.losses[step] / one.losses[step], 1, 1e-5) << step + 1;
                EXPECT_TRUE(rank.outcome.equal_on_all_ranks);
            }
}

// What one shape has saved, another goes on with.
TEST(DividedTraining, GoesOnInAnyShape) {
    Settings settings = hundred_steps();
    settings.max_steps = 30;
    Settings sharded = settings;
    sharded.shard_optimizer = true;
    Settings of_tokens = sharded;
    of_tokens.sequence_parallel = true;
    const Trained one = train_divided({1, 1, 1}, settings).front();
    struct Case {
        ModelParallel wrote, reads;
        Settings before, after;
    };
    for (const auto& [wrote, reads, before, after] : {Case{{2, 2, 1}, {1, 1, 1}, settings, settings},
                                                      {{1, 1, 1}, {4, 2, 1}, settings, sharded},
                                                      {{2, 2, 1}, {4, 1, 1}, sharded, settings},
                                                      {{4, 1, 1}, {2, 4, 1}, settings, sharded},
                                                      {{2, 1, 2}, {1, 1, 1}, sharded, settings},
                                                      {{1, 1, 1}, {1, 2, 4}, settings, settings},
                                                      {{2, 1, 2}, {1, 2, 1}, of_tokens, settings},
                                                      {{1, 2, 2}, {4, 1, 2}, settings, of_tokens}}) {
        const Scratch scratch;
        Settings resuming = after;
        resuming.checkpoints.directory = saved_at_ten(scratch, wrote, before);
        resuming.checkpoints.resume = Resume::must;
        for (const Trained& rank : train_divided(reads, resuming)) {
            ASSERT_EQ(rank.losses.size(), 20u);
            EXPECT_EQ(rank.outcome.resumed, 10);
            for (std::size_t step = 0; step < 20; ++step)
                ASSERT_NEAR(rank.losses[step] / one.losses[10 + step], 1, 1e-5) << "step " << step + 11;
            // Its epoch had begun before.
            EXPECT_NEAR(rank.outcome.last.loss / one.outcome.last.loss, 1, 1e-5);
            EXPECT_TRUE(rank.outcome.equal_on_all_ranks);
        }
    }
}

// Nothing is left to train, so all numbers are those that were saved.
TEST(DividedTraining, SavesAndReadsToTheBit) {
    Settings settings = hundred_steps();
    settings.max_steps = 10;
    const Scratch scratch;
    settings.checkpoints.directory = scratch.path() / "saved";
    const Trained wrote = train_divided({2, 1, 2}, settings).front();
    for (const ModelParallel& reads :
         {ModelParallel{1, 1, 1}, {4, 1, 1}, {2, 2, 1}, {1, 4, 1}, {1, 1, 4}, {2, 2, 2}, {2, 1, 2}})
        EXPECT_EQ(train_divided(reads, settings).front().outcome.parameters_hash,
                  wrote.outcome.parameters_hash);
    Settings interleaved = settings;
    interleaved.pipeline_schedule = PipelineSchedule::interleaved;
    interleaved.virtual_stages = 2;
    EXPECT_EQ(train_divided({1, 1, 2}, interleaved).front().outcome.parameters_hash,
              wrote.outcome.parameters_hash);
    Settings split = settings;
    for (const PipelineSplit& one : {PipelineSplit{true, {}}, {false, {1, 4}}, {false, {3, 2}}}) {
        split.pipeline_split = one;
        EXPECT_EQ(train_divided({1, 1, 2}, split).front().outcome.parameters_hash,
                  wrote.outcome.parameters_hash);
    }
    const Scratch another;
    settings.checkpoints.directory = interleaved.checkpoints.directory = another.path() / "saved";
    const auto hash = train_divided({2, 1, 2}, interleaved).front().outcome.parameters_hash;
    EXPECT_EQ(train_divided({1, 1, 1}, settings).front().outcome.parameters_hash, hash);
}

// A communicator whose sums end after a while.
class FailsLater final : public Communicator {
 public:
    FailsLater(Communicator& inner, int good) : inner_(inner), good_(good) {}
    Result<void> start_send(const Tensor& tensor, std::int64_t to, Lane lane) override {
        return inner_.start_send(tensor, to, lane);
    }
    Result<void> receive(const Tensor& tensor, std::int64_t from, Lane lane) override {
        if (good_-- <= 0) return fail(Fault::world, "a rank is gone");
        return inner_.receive(tensor, from, lane);
    }
    std::string_view name() const override { return inner_.name(); }
    std::int64_t rank() const override { return inner_.rank(); }
    std::int64_t size() const override { return inner_.size(); }
    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        if (good_-- <= 0) return fail(Fault::world, "a rank is gone");
        return inner_.all_reduce(tensor, reduction);
    }
    Result<void> all_gather(const Tensor& tensor) override { return inner_.all_gather(tensor); }
    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        return inner_.broadcast(tensor, root);
    }

 private:
    Communicator& inner_;
    int good_;
};

// Two stages, each with as many messages to receive; afterwards they do not wait for each other.
TEST(DividedTraining, EndsWhereAMessageOfThePipelineFails) {
    const Dataset data = text_set();
    for (const int good : {0, 3, 50}) {
        ThreadGrid({1, 1, 2}).run([&](const Ranks& ranks) {
            FailsLater stages(ranks.pipeline, good);
            const auto device = open_cpu(1);
            Settings settings = hundred_steps();
            settings.batch = 4;
            settings.accumulate = 4;
            ModelShape shape = gpt_shape(0);
            shape.gpt.layout = layout_of({1, 1, 2}, static_cast<std::uint32_t>(ranks.world.rank()), settings);
            const ModelInfo& info = *find_model("gpt");
            const auto model = info.make(shape);
            Seen seen;
            const auto outcome = train(info, *model, data, settings, *device,
                                       {ranks.world, ranks.data, ranks.tensor, stages}, seen);
            ASSERT_FALSE(outcome);
            EXPECT_EQ(outcome.error().message, "a rank is gone");
            EXPECT_LT(seen.steps, 100);
        });
    }
}

// All at the same sum, as when a rank dies; afterwards they do not wait for each other.
TEST(DividedTraining, EndsWhereASumOfTheModelFails) {
    const ModelInfo& info = *find_model("gpt");
    const Dataset data = text_set();
    for (const int good : {0, 7, 200}) {
        ThreadGrid({2, 2, 1}).run([&](const Ranks& ranks) {
            FailsLater tensor(ranks.tensor, good);
            const auto device = open_cpu(1);
            ModelShape shape = gpt_shape(0);
            shape.gpt.layout = {tensor.rank(), tensor.size()};
            const auto model = info.make(shape);
            Settings settings = hundred_steps();
            settings.batch = 8;
            Seen seen;
            const auto outcome =
                train(info, *model, data, settings, *device, {ranks.world, ranks.data, tensor}, seen);
            ASSERT_FALSE(outcome);
            EXPECT_EQ(outcome.error().message, "a rank is gone");
            EXPECT_LT(seen.steps, 100);
        });
    }
}

}  // namespace
}  // namespace dp::trainer
