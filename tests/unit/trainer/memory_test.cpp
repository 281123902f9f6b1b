// SPDX-License-Identifier: Apache-2.0
//
// The memory estimate against what is allocated, the advice that follows from it, and devices made small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <mutex>
#include <string>

#include "devices.hpp"
#include "small_models.hpp"
#include "thread_grid.hpp"
#include "trainer/commands/parallel_choice.hpp"
#include "trainer/memory/available.hpp"
#include "trainer/memory/estimate.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class Nobody final : public Observer {
 public:
    void on_step(std::int64_t, std::int64_t, const Schedule&) override {}
    void on_epoch(const EpochReport&, const Schedule&) override {}
};

Settings settings_of(std::int64_t batch, std::int64_t accumulate, Optimization optimizer) {
    Settings settings;
    settings.batch = batch;
    settings.accumulate = accumulate;
    settings.optimizer = optimizer;
    return settings;
}

// What one step of a training allocates; an error of the device's where that is not to be had.
Result<std::int64_t> allocated(const ModelInfo& info, const Settings& settings,
                               std::optional<std::int64_t> limit = {}) {
    const auto device = open_cpu(1);
    if (limit) device->memory().set_limit(*limit);
    const auto model = info.make(shape());
    SingleCommunicator alone;
    Nobody nobody;
    auto done = repeat_step(info, *model, data_for(info), settings, *device, alone, 1, nobody);
    if (!done) return tl::make_unexpected(done.error());
    return device->memory().peak();
}

void expect_within_a_tenth(const ModelInfo& info, const Settings& settings) {
    const Dataset data = data_for(info);
    const auto device = open_cpu(1);
    const auto needs = estimate_memory({*info.make(shape()), settings, &data, 1, device.get()});
    const auto really = allocated(info, settings);
    ASSERT_TRUE(really) << really.error().message;
    const double ratio = static_cast<double>(needs.total()) / static_cast<double>(*really);
    const std::string what = fmt::format("{} in {}, batch {}, accumulate {}: {}, really {}", info.name,
                                         name_of(settings.precision), settings.batch, settings.accumulate,
                                         needs_text(needs), size_text(*really));
    EXPECT_LT(ratio, 1.1) << what;
    // What is said to fit does fit.
    EXPECT_GE(ratio, 1) << what;
}

TEST(MemoryEstimate, IsWithinATenthOfWhatATrainingAllocates) {
    for (const ModelInfo& info : kModels)
        for (const std::int64_t batch : {2, 250})
            for (const std::int64_t accumulate : {1, 2})
                for (const auto optimizer : {Optimization::sgd, Optimization::adam})
                    expect_within_a_tenth(info, settings_of(batch, accumulate, optimizer));
}

// The CPU computes on copies.
TEST(MemoryEstimate, OfBf16OnTheCpuIsWithinATenthOfWhatATrainingAllocates) {
    for (const ModelInfo& info : kModels) {
        for (const std::int64_t batch : {2, 250}) {
            Settings settings = settings_of(batch, 1, Optimization::sgd);
            settings.precision = Precision::bf16;
            expect_within_a_tenth(info, settings);
        }
    }
}

// What is placed; that is all on a device that computes in bf16.
TEST(MemoryEstimate, OfBf16IsWithinATenthOfWhatIsPlaced) {
    for (const ModelInfo& info : kModels) {
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
            Settings settings = settings_of(250, 1, Optimization::sgd);
            settings.precision = precision;
            const auto device = open_cpu(1);
            const auto model = info.make(shape());
            const auto needs = estimate_memory({*model, settings, nullptr, 1});
            const std::int64_t rows =
                std::max<std::int64_t>(250, test_batch_of(model->activations_per_sample(), 250));
            model->place(*device, 1, rows, type_of(precision));
            const auto placed = static_cast<double>(device->memory().held());
            // The features of a batch are counted among the activations, and made elsewhere.
            const Matrix features = data_for(info).train.features;
            const auto elsewhere =
                rows * features.columns *
                static_cast<std::int64_t>(size_of(gathered_type(features.type, type_of(precision))));
            const auto expected =
                static_cast<double>(needs.parameters + needs.gradients + needs.activations - elsewhere);
            EXPECT_GE(expected, placed) << info.name << " in " << name_of(precision);
            EXPECT_LT(expected, 1.1 * placed) << info.name << " in " << name_of(precision);
        }
    }
}

// On the emulated GPU, too. What CUDA and NCCL take for themselves they have before anybody reads how much is left.
TEST(MemoryOnGpu, IsWithinThreePercentOfTheEstimate) {
    struct Case {
        const char* model;
        std::int64_t batch, accumulate;
        Precision precision;
    };
    for (const Case& one : {Case{"cnn", 4, 1, Precision::fp32}, Case{"gpt", 4, 1, Precision::fp32},
                            Case{"gpt", 4, 2, Precision::fp32}, Case{"gpt", 8, 1, Precision::bf16}}) {
        auto opened = open_cuda({});
        if (!opened && std::getenv("DP_TESTS_REQUIRE_CUDA") != nullptr) FAIL() << opened.error().message;
        if (!opened) GTEST_SKIP() << "not run on CUDA: " << opened.error().message;
        Device& device = **opened;
        const ModelInfo& info = *find_model(one.model);
        Settings settings = settings_of(one.batch, one.accumulate, Optimization::adam);
        settings.precision = one.precision;
        settings.clip = 1;
        ModelShape larger = shape();
        larger.gpt.hidden = 128;
        larger.gpt.vocabulary = 2000;
        const auto model = info.make(larger);
        const Dataset data = data_for(info);
        const auto needs = estimate_memory({*model, settings, &data, 1, &device});
        SingleCommunicator alone;
        Nobody nobody;
        const auto done = repeat_step(info, *model, data, settings, device, alone, 1, nobody);
        ASSERT_TRUE(done) << done.error().message;
        const double ratio = static_cast<double>(needs.total()) / static_cast<double>(device.memory().peak());
        const std::string what =
            fmt::format("{} in {}, batch {}, accumulate {}: {}, really {}", one.model, name_of(one.precision),
                        one.batch, one.accumulate, needs_text(needs), size_text(device.memory().peak()));
        EXPECT_GE(ratio, 1) << what;
        EXPECT_LT(ratio, 1.03) << what;
    }
}

// What each rank of a divided gpt allocates in a step, and less of it where ranks divide the tokens, too. Batches are larger than what
// is tested at a time.
TEST(MemoryEstimate, OfADividedModelIsWithinATenthOfWhatItsRanksAllocate) {
    const ModelInfo& info = *find_model("gpt");
    ModelShape whole = shape();
    whole.gpt = {4, 32, 4, 128, 100};
    const auto text = [&](std::int64_t count) {
        const std::int64_t tokens = whole.gpt.sequence;
        Split made{count, matrix(Type::u16, count, tokens), {}, {Type::u16, tokens, {}}, true};
        made.features.bytes.resize(made.features.bytes.size() + sizeof(std::uint16_t));
        return made;
    };
    const Dataset data{text(256), text(8), ""};
    struct Case {
        ModelParallel parallel;
        std::int64_t batch;
        bool recompute;
        double most;  // of the memory without sequence parallelism, all of it
    };
    for (const Case& one : {Case{{2, 1, 1}, 128, false, 0.85},
                            {{4, 1, 1}, 224, false, 0.75},
                            {{2, 1, 2}, 32, false, 0.85},
                            {{2, 1, 2}, 32, true, 0.95}}) {
        std::map<bool, std::int64_t> peaks;
        for (const bool divides_tokens : {false, true}) {
            Settings settings =
                settings_of(one.batch, one.parallel.pipeline == 1 ? 1 : 4, Optimization::adam);
            settings.sequence_parallel = divides_tokens;
            std::mutex mutex;
            ThreadGrid(one.parallel).run([&](const Ranks& ranks) {
                ModelShape mine = whole;
                mine.gpt.recompute = one.recompute;
                mine.gpt.layout = layout_of(one.parallel, ranks.world.rank(), settings);
                const auto device = open_cpu(1);
                const auto model = info.make(mine);
                Nobody nobody;
                const auto needs = estimate_memory({*model, settings, &data, 1, device.get()});
                const auto done = repeat_step(info, *model, data, settings, *device, ranks, 1, nobody);
                const std::lock_guard lock(mutex);
                ASSERT_TRUE(done) << done.error().message;
                // Of the room for what ranks exchange, most is for checkpoints and the end.
                constexpr std::int64_t kRoom = 6 << 20, kOfAStep = 64 << 10;
                const std::int64_t peak = device->memory().peak(), counted = needs.total() - kRoom;
                const std::string what = fmt::format(
                    "tensor {} stages {}, tokens {}, recompute {}: {}, really {}", one.parallel.tensor,
                    one.parallel.pipeline, divides_tokens, one.recompute, needs_text(needs), size_text(peak));
                EXPECT_GE(counted + kOfAStep, peak) << what;
                EXPECT_LT(static_cast<double>(counted) / static_cast<double>(peak), 1.1) << what;
                peaks[divides_tokens] = std::max(peaks[divides_tokens], peak);
            });
        }
        EXPECT_LT(static_cast<double>(peaks[true]) / static_cast<double>(peaks[false]), one.most)
            << one.parallel.tensor << " " << one.parallel.pipeline << " " << one.recompute;
    }
}

TEST(MemoryEstimate, CountsByPart) {
    const auto model = find_model("ffn")->make({});
    const std::int64_t parameters = (235146 + 54) * 4;  // the last bias is padded
    auto needs = estimate_memory({*model, settings_of(64, 1, Optimization::adam), nullptr, 1});
    EXPECT_EQ(needs.parameters, parameters);
    EXPECT_EQ(needs.gradients, parameters);
    EXPECT_EQ(needs.optimizer, 2 * parameters);
    EXPECT_EQ(needs.data, 0);
    needs = estimate_memory({*model, settings_of(64, 2, Optimization::sgd), nullptr, 1});
    EXPECT_EQ(needs.gradients, 2 * parameters);
    EXPECT_EQ(needs.optimizer, parameters);
    // A part of the optimizer's state where it is sharded: the largest one counts.
    auto sharded = settings_of(64, 1, Optimization::adam);
    sharded.shard_optimizer = true;
    EXPECT_EQ(estimate_memory({*model, sharded, nullptr, 1}).optimizer, 2 * parameters);
    EXPECT_EQ(estimate_memory({*model, sharded, nullptr, 4}).optimizer, 2 * parameters / 4);
    EXPECT_EQ(estimate_memory({*model, sharded, nullptr, 7}).optimizer, 2 * 4 * 33600);
    EXPECT_EQ(estimate_memory({*model, sharded, nullptr, 4}).gradients, parameters);
    // And a copy of another rank's part, with its values.
    auto copied = sharded;
    copied.peer_copy = 1;
    EXPECT_EQ(estimate_memory({*model, copied, nullptr, 4}).optimizer, (2 + 3) * parameters / 4);
    EXPECT_EQ(estimate_memory({*model, copied, nullptr, 1}).optimizer, 2 * parameters);
    // On CPUs what is written beside the training, a part of values and state.
    auto saved = settings_of(64, 1, Optimization::adam);
    saved.checkpoints.is_async = true;
    const auto cpu = open_cpu(1);
    needs = estimate_memory({*model, saved, nullptr, 4, cpu.get()});
    EXPECT_EQ(needs.checkpoint, 3 * parameters / 4);
    EXPECT_THAT(needs_text(needs), HasSubstr(", data 0 B, checkpoint copy 689.1 KiB)"));
    EXPECT_EQ(estimate_memory({*model, saved, nullptr, 4}).checkpoint, 0) << "of a device that is not known";
    // Where four ranks of a node share memory: a fourth, of the optimizer's state where that is not sharded.
    const Settings two_batches = settings_of(64, 2, Optimization::adam);
    needs = estimate_memory({*model, two_batches, nullptr, 8, nullptr, 4});
    EXPECT_EQ(needs.parameters, parameters / 4);
    EXPECT_EQ(needs.gradients, 2 * parameters);
    EXPECT_EQ(needs.optimizer, 2 * parameters / 4);
    EXPECT_THAT(needs_text(needs), EndsWith("; the ranks of a node share parameters and optimizer)"));
    needs = estimate_memory({*model, sharded, nullptr, 8, nullptr, 4});
    EXPECT_EQ(needs.optimizer, 2 * parameters / 8);
    EXPECT_THAT(needs_text(needs), EndsWith("; the ranks of a node share parameters)"));
    const MemoryCase of_four{*model, two_batches, nullptr, 8, nullptr, 4};
    EXPECT_EQ(saved_by_sharing(of_four), 3 * parameters - 3 * parameters / 4);
    // bf16: the values and half as much again; what flows takes half.
    Settings narrow = settings_of(64, 1, Optimization::adam);
    const auto wide_needs = estimate_memory({*model, narrow, nullptr, 1});
    narrow.precision = Precision::bf16;
    needs = estimate_memory({*model, narrow, nullptr, 1});
    EXPECT_EQ(needs.parameters, parameters + parameters / 2);
    EXPECT_EQ(needs.gradients, parameters);
    EXPECT_EQ(needs.optimizer, 2 * parameters);
    EXPECT_EQ(wide_needs.activations - needs.activations, 512 * model->activations_per_sample() * 2);
    // The training samples are on every rank, the test samples shared out.
    const Dataset data{images(1000), images(800), ""};
    const auto of = [&](std::int64_t world) {
        return estimate_memory({*model, settings_of(1, 1, Optimization::sgd), &data, world}).data;
    };
    EXPECT_NEAR(static_cast<double>(of(1) - of(4)), 600 * 788.0, 0.02 * 600 * 788);
}

TEST(SizeText, TakesTheLargestUnitOfWhichThereIsOne) {
    EXPECT_EQ(size_text(0), "0 B");
    EXPECT_EQ(size_text(1023), "1023 B");
    EXPECT_EQ(size_text(1536), "1.5 KiB");
    EXPECT_EQ(size_text(std::int64_t{16945} << 20), "16.5 GiB");
}

// The advice for a batch: "<largest> is the largest that fits; --batch-size <b> --accumulate <a> keeps ...".
struct Advised {
    std::int64_t largest = 0, batch = 0, accumulate = 0;
};
Advised parse(const std::string& advice) {
    Advised advised;
    std::sscanf(advice.c_str(),
                "%ld is the largest that fits; --batch-size %ld --accumulate %ld keeps the global batch",
                &advised.largest, &advised.batch, &advised.accumulate);
    return advised;
}

TEST(MemoryAdvice, IsTheLargestBatchThatFitsAndOneThatKeepsTheGlobalBatch) {
    const auto model = find_model("cnn")->make({});
    for (const std::int64_t accumulate : {1, 3}) {
        const auto needs = [&](std::int64_t batch, std::int64_t times) {
            return estimate_memory({*model, settings_of(batch, times, Optimization::adam), nullptr, 1})
                .total();
        };
        const auto settings = settings_of(2048, accumulate, Optimization::adam);
        for (const std::int64_t fitting : {150, 1000, 1024, 2047}) {
            const auto advised =
                parse(batch_advice({*model, settings, nullptr, 1}, needs(fitting, accumulate)));
            EXPECT_EQ(advised.largest, fitting);
            EXPECT_EQ(advised.batch * advised.accumulate, 2048 * accumulate);
            EXPECT_LE(needs(advised.batch, advised.accumulate), needs(fitting, accumulate));
            EXPECT_GT(2 * advised.batch + 600, fitting) << "not much smaller than it must be";
        }
    }
}

TEST(MemoryAdvice, WhatItSaysFitsDoesFit) {
    for (const ModelInfo& info : kModels) {
        const auto model = info.make(shape());
        const Dataset data = data_for(info);
        const auto settings = settings_of(1000, 1, Optimization::adam);
        const auto device = open_cpu(1);
        const auto needs = [&](const Settings& of) {
            return estimate_memory({*model, of, &data, 1, device.get()}).total();
        };
        const std::int64_t limit = (3 * needs(settings) + needs(settings_of(1, 1, Optimization::adam))) / 4;
        const auto advised = parse(batch_advice({*model, settings, &data, 1, device.get()}, limit));
        ASSERT_GT(advised.accumulate, 1) << info.name;
        EXPECT_TRUE(allocated(info, settings_of(advised.largest, 1, Optimization::adam), limit)) << info.name;
        EXPECT_TRUE(
            allocated(info, settings_of(advised.batch, advised.accumulate, Optimization::adam), limit))
            << info.name;
    }
}

TEST(MemoryAdvice, NamesRecomputeWhereThatWouldDo) {
    const auto settings = settings_of(64, 1, Optimization::adam);
    ModelShape keeping = shape(), recomputing = shape();
    keeping.gpt.layers = recomputing.gpt.layers = 8;
    recomputing.gpt.recompute = true;
    const auto kept = find_model("gpt")->make(keeping), again = find_model("gpt")->make(recomputing);
    const auto needs = estimate_memory({*again, settings, nullptr, 1}).total();
    ASSERT_LT(needs, estimate_memory({*kept, settings, nullptr, 1}).total());
    const std::string said = "; with --recompute a batch of 64 fits, too, and takes longer";
    EXPECT_THAT(batch_advice({*kept, settings, nullptr, 1, nullptr, 1, again.get()}, needs), EndsWith(said));
    EXPECT_THAT(batch_advice({*kept, settings, nullptr, 1, nullptr, 1, again.get()}, needs - 1),
                Not(EndsWith(said)));
    EXPECT_THAT(batch_advice({*kept, settings, nullptr, 1}, needs), Not(EndsWith(said)));
}

// The stage that refuses is not the only one that must fit.
TEST(MemoryAdvice, NamesTheEvenSplitWhereThatWouldDo) {
    const auto settings = settings_of(64, 2, Optimization::adam);
    const auto stage_of = [](const std::vector<std::int64_t>& layers, std::int64_t stage) {
        ModelShape some = shape();
        some.gpt.layers = 4;
        some.gpt.layout.stages = 2;
        some.gpt.layout.stage = stage;
        some.gpt.layout.split.layers = layers;
        return find_model("gpt")->make(some);
    };
    const auto needs_of = [&](const Model& model) {
        return estimate_memory({model, settings, nullptr, 1}).total();
    };
    const auto first = stage_of({3, 1}, 0);
    int times_made = 0;
    const auto evenly = [&] {
        std::vector<std::unique_ptr<Model>> stages;
        for (const std::int64_t stage : {0, 1}) stages.push_back(stage_of({2, 2}, stage));
        ++times_made;
        return stages;
    };
    const std::int64_t most = std::max(needs_of(*stage_of({2, 2}, 0)), needs_of(*stage_of({2, 2}, 1)));
    ASSERT_LT(most, needs_of(*first));
    const std::string said = "; with --pipeline-split=even a batch of 64 fits, too";
    estimate_memory({*first, settings, nullptr, 1, nullptr, 1, nullptr, evenly});
    EXPECT_EQ(times_made, 0) << "only advice needs them";
    const auto advice = [&](decltype(MemoryCase::evenly) stages, std::int64_t available) {
        return batch_advice({*first, settings, nullptr, 1, nullptr, 1, nullptr, stages}, available);
    };
    EXPECT_THAT(advice(evenly, most), EndsWith(said));
    EXPECT_THAT(advice(evenly, most - 1), Not(EndsWith(said))) << "one of the stages is too large";
    EXPECT_THAT(advice({}, most), Not(EndsWith(said)));
}

TEST(MemoryAdvice, NamesTheShardedOptimizerWhereThatWouldDo) {
    const auto model = find_model("cnn")->make({});
    auto settings = settings_of(64, 1, Optimization::adam), sharded = settings;
    sharded.shard_optimizer = true;
    const auto needs = estimate_memory({*model, sharded, nullptr, 4}).total();
    const std::string said = "; with --shard-optimizer a batch of 64 fits, too";
    EXPECT_THAT(batch_advice({*model, settings, nullptr, 4}, needs), EndsWith(said));
    EXPECT_THAT(batch_advice({*model, settings, nullptr, 4}, needs - 1), Not(EndsWith(said)));
    EXPECT_THAT(batch_advice({*model, settings, nullptr, 1}, needs), Not(EndsWith(said)));
    EXPECT_THAT(batch_advice({*model, sharded, nullptr, 4}, needs), Not(EndsWith(said)));
}

TEST(MemoryAdvice, SaysWhereNoBatchFits) {
    const auto model = find_model("cnn")->make({});
    EXPECT_THAT(batch_advice({*model, settings_of(64, 1, Optimization::adam), nullptr, 1}, 1 << 20),
                HasSubstr("not even 1 fits"));
    EXPECT_THAT(batch_advice({*model, settings_of(1, 1, Optimization::adam), nullptr, 1}, 1 << 30),
                HasSubstr("not even 1 fits"));
}

TEST(MemoryProblem, IsOneLineWithTheNeedsByPartAndTheAdvice) {
    const auto model = find_model("cnn")->make({});
    const auto settings = settings_of(2048, 1, Optimization::adam);
    const auto problem = memory_problem("cnn", {*model, settings, nullptr, 1}, "cuda", 500 << 20);
    ASSERT_TRUE(problem);
    EXPECT_THAT(*problem,
                HasSubstr("cnn with a batch of 2048 needs 1.2 GiB (parameters 4.6 MiB, gradients "));
    EXPECT_THAT(*problem, HasSubstr("per rank, but cuda has 500.0 MiB; give a smaller --batch-size: "));
    EXPECT_THAT(*problem, EndsWith("keeps the global batch"));
    EXPECT_EQ(problem->find('\n'), std::string::npos);
    EXPECT_FALSE(memory_problem("cnn", {*model, settings, nullptr, 1}, "cuda", std::int64_t{2} << 30));
}

// The DLI tutorial's GPT runs out of its GPU's 15.78 GiB with a micro-batch of 32.
TEST(MemoryProblem, IsKnownBeforeTheRunOfTheDliTutorial) {
    ModelShape tutorial;
    tutorial.gpt = {12, 768, 32, 1024, 50257};
    const auto model = find_model("gpt")->make(tutorial);
    const auto settings = settings_of(32, 1, Optimization::adam);
    const auto available = static_cast<std::int64_t>(15.78 * (1 << 30));
    const auto problem = memory_problem("gpt", {*model, settings, nullptr, 4}, "cuda", available);
    ASSERT_TRUE(problem);
    EXPECT_THAT(*problem, HasSubstr("gpt with a batch of 32 needs "));
    const auto advised = parse(batch_advice({*model, settings, nullptr, 4}, available));
    EXPECT_GE(advised.largest, 2) << "which the tutorial trains with";
    EXPECT_LT(advised.largest, 32);
    EXPECT_EQ(advised.batch * advised.accumulate, 32);
}

TEST(MemoryAdvice, FollowsAnErrorWhereMemoryHasRunOut) {
    const ModelInfo& info = *find_model("cnn");
    const Dataset data = data_for(info);
    const auto settings = settings_of(1000, 1, Optimization::adam);
    const auto device = open_cpu(1);
    const std::int64_t limit =
        estimate_memory({*info.make({}), settings_of(400, 1, Optimization::adam), &data, 1, device.get()})
            .total();
    device->memory().set_limit(limit);
    const auto model = info.make({});
    const MemoryCase memory_case{*model, settings, &data, 1, device.get()};
    const Error other = with_advice(Error{Fault::world, "rank 1 is gone"}, *device, memory_case);
    EXPECT_EQ(other.message, "rank 1 is gone");
    SingleCommunicator alone;
    Nobody nobody;
    const auto done = repeat_step(info, *model, data, settings, *device, alone, 1, nobody);
    ASSERT_FALSE(done);
    const Error advice = with_advice(done.error(), *device, memory_case);
    EXPECT_EQ(advice.fault, done.error().fault);
    ASSERT_THAT(advice.message, HasSubstr(done.error().message + ": "));
    const auto advised = parse(advice.message.substr(done.error().message.size() + 2));
    ASSERT_GT(advised.accumulate, 1) << advice.message;
    EXPECT_EQ(advised.batch * advised.accumulate, 1000);
    EXPECT_TRUE(allocated(info, settings_of(advised.batch, advised.accumulate, Optimization::adam), limit));
}

// A rank that goes by the estimate beside one that goes by a plan would refuse alone.
TEST(CommonMemory, IsTheLeastAvailableAndTheMostMeasuredAndNoneWhereARankHasNone) {
    struct Case {
        std::vector<std::int64_t> available;
        std::vector<std::optional<std::int64_t>> peaks;
        std::int64_t least;
        std::optional<std::int64_t> most;
    };
    constexpr std::int64_t kMuch = std::int64_t{300} << 30;
    for (const auto& one : std::vector<Case>{{{7}, {100}, 7, 100},
                                             {{7}, {std::nullopt}, 7, std::nullopt},
                                             {{kMuch, 8, 9}, {100, kMuch, 200}, 8, kMuch},
                                             {{9, 8, 7}, {100, std::nullopt, 200}, 7, std::nullopt}})
        ThreadWorld(static_cast<std::int64_t>(one.peaks.size())).run([&](Communicator& ranks) {
            const auto device = open_cpu(1);
            const auto rank = static_cast<std::size_t>(ranks.rank());
            const auto common = common_memory(one.available[rank], one.peaks[rank], *device, ranks);
            ASSERT_TRUE(common) << common.error().message;
            EXPECT_EQ(common->available, one.least);
            EXPECT_EQ(common->peak, one.most);
        });
}

TEST(MemoryAccount, CountsWhatIsHeldAndKeepsTheLimit) {
    const auto device = open_cpu(1);
    MemoryAccount& memory = device->memory();
    Tensor first = device->make(Type::f32, {100});
    {
        const Tensor second = device->make(Type::f64, {100});
        EXPECT_EQ(memory.held(), 1200);
        const Tensor view = second.view(10, {5});
        EXPECT_EQ(memory.held(), 1200);
    }
    EXPECT_EQ(memory.held(), 400);
    EXPECT_EQ(memory.peak(), 1200);
    memory.set_limit(800);
    EXPECT_TRUE(device->make(Type::u8, {400}));
    EXPECT_TRUE(device->status());
    EXPECT_FALSE(device->make(Type::u8, {401}));
    EXPECT_FALSE(device->status());
    EXPECT_EQ(memory.held(), 400);
    first = {};
    EXPECT_EQ(memory.held(), 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
// A number of /proc/self/status, in bytes.
std::int64_t status_of_process(const std::string& name) {
    std::ifstream in("/proc/self/status");
    for (std::string line; std::getline(in, line);)
        if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
    return 0;
}

// Also of what a library has on the way: who goes by the account is not killed.
TEST(MemoryAccount, KnowsAllThatATrainingTakesOfTheMachine) {
    std::ofstream("/proc/self/clear_refs") << 5;  // from now on the peak is counted
    const std::int64_t before = status_of_process("VmRSS");
    if (before == 0 || status_of_process("VmHWM") > before + (8 << 20))
        GTEST_SKIP() << "/proc/self/clear_refs does not work here";
    ModelShape large = shape();
    large.image_size = 128;
    large.features = 16;
    const auto device = open_cpu(2);
    const auto model = find_model("unet2d")->make(large);
    const std::int64_t pixels = 128 * 128;
    const Dataset data{samples(8, Type::u8, 3 * pixels, Type::f32, pixels),
                       samples(8, Type::u8, 3 * pixels, Type::f32, pixels), ""};
    SingleCommunicator alone;
    Nobody nobody;
    const auto settings = settings_of(4, 1, Optimization::adam);
    ASSERT_TRUE(repeat_step(*find_model("unet2d"), *model, data, settings, *device, alone, 1, nobody));
    const auto counted = static_cast<double>(device->memory().peak());
    EXPECT_GT(counted, 100 << 20) << "small enough for a library's code to count";
    // A library's code and threads.
    EXPECT_LT(static_cast<double>(status_of_process("VmHWM") - before), 1.1 * counted + (16 << 20));
}
#endif

// On the GPU where there is one.
TEST(MemoryLimit, FailsAsTheDevicesOwnOutOfMemoryDoes) {
    for (const char* kind : {"cpu", "cuda"}) {
        const auto open = [&]() -> std::unique_ptr<Device> {
            if (std::string_view(kind) == "cpu") return open_cpu(1);
            auto cuda = open_cuda({});
            return cuda ? std::move(*cuda) : nullptr;
        };
        const auto limited = open(), own = open();
        if (limited == nullptr) continue;
        const std::int64_t held = own->memory().held(), peak = own->memory().peak();
        limited->memory().set_limit(held + (1 << 20));
        constexpr std::int64_t kImpossible = std::int64_t{1} << 50;
        EXPECT_FALSE(limited->make(Type::u8, {kImpossible}));
        EXPECT_FALSE(own->make(Type::u8, {kImpossible}));
        ASSERT_FALSE(limited->status());
        ASSERT_FALSE(own->status());
        EXPECT_EQ(limited->status().error().message, own->status().error().message);
        EXPECT_EQ(limited->status().error().fault, Fault::device);
        EXPECT_TRUE(limited->memory().is_exhausted());
        EXPECT_TRUE(own->memory().is_exhausted());
        EXPECT_EQ(own->memory().held(), held);
        EXPECT_EQ(own->memory().peak(), peak) << "advice is for what the device had, not for what it refused";
    }
}

TEST(MemoryLimit, ATrainingUnderItEndsWithTheDevicesError) {
    const ModelInfo& info = *find_model("ffn");
    const auto settings = settings_of(64, 1, Optimization::adam);
    const auto needed = allocated(info, settings);
    ASSERT_TRUE(needed);
    EXPECT_TRUE(allocated(info, settings, *needed));
    const auto refused = allocated(info, settings, *needed - 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().fault, Fault::device);
    EXPECT_THAT(refused.error().message, HasSubstr("cpu: out of memory"));
}

// GPT-2's: few tokens at a time for a small batch, and for a large one a small part of what is held anyway.
// Those of a token begin at a multiple of 128 bytes: 50257 of them take 50304.
TEST(MemoryEstimate, LogitsComeInPiecesThatGrowWithTheBatch) {
    ModelShape gpt2;
    gpt2.gpt.layers = gpt2.gpt.heads = 12;
    gpt2.gpt.hidden = 768;
    gpt2.gpt.sequence = 1024;
    const auto model = find_model("gpt")->make(gpt2);
    const auto tokens_of_a_piece = [&](std::int64_t batch) { return model->scratch(batch) / 50304; };
    EXPECT_EQ(tokens_of_a_piece(1), 640);
    EXPECT_EQ(tokens_of_a_piece(4), 640);
    EXPECT_EQ(tokens_of_a_piece(32), 3072);
    for (const std::int64_t batch : {16, 64, 100}) {
        EXPECT_EQ(tokens_of_a_piece(batch) % 128, 0);
        EXPECT_LE(model->scratch(batch), model->activations_per_sample() * batch / 32);
    }
    gpt2.gpt.sequence = 100;  // fewer than a piece might have
    EXPECT_EQ(find_model("gpt")->make(gpt2)->scratch(2), 200 * 50304);
}

}  // namespace
}  // namespace dp::trainer
