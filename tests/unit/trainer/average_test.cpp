// SPDX-License-Identifier: Apache-2.0
//
// --ema-decay: the average is that of float64 over the values of each step, goes on from checkpoints with the same bits, and is what
// --weights=ema means.
#include <gmock/gmock.h>

#include <cmath>

#include "saved_training.hpp"
#include "trainer/checkpoint/shard.hpp"
#include "trainer/commands/saved_model.hpp"
#include "trainer/memory/estimate.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr double kDecay = 0.8;

// All parameters, one behind the other.
std::vector<float> saved_numbers(const fs::path& directory, std::int64_t step, const char* vector) {
    const auto path = checkpoint_path(directory, step);
    const auto manifest = read_manifest(path);
    EXPECT_TRUE(manifest) << manifest.error().message;
    std::vector<float> all;
    for (std::size_t i = 0; manifest && i < manifest->training.parameters.size(); ++i) {
        const auto some = read_parameter(path, *manifest, i, vector);
        EXPECT_TRUE(some) << some.error().message;
        if (some) all.insert(all.end(), some->begin(), some->end());
    }
    return all;
}

Settings averaging(const fs::path& directory, std::int64_t steps) {
    Settings settings = saved_settings(directory);
    settings.epochs.reset();
    settings.max_steps = steps;
    settings.batch = 60;
    settings.ema_decay = kDecay;
    return settings;
}

std::vector<float> initial_values(const ModelShape& shape) {
    const auto device = open_cpu(1);
    const auto model = make_model(*find_model("ffn"), shape);
    model->place(*device, Settings{}.seed, 1);
    return model->parameters().download(*device);
}

void expect_average(const Settings& settings, const ModelShape& shape, const std::string& what) {
    std::vector<double> average;
    for (const float value : initial_values(shape)) average.push_back(value);
    std::vector<float> values;
    for (std::int64_t step = 1; step <= *settings.max_steps; ++step) {
        values = saved_numbers(settings.checkpoints.directory, step, "values");
        const auto ema = saved_numbers(settings.checkpoints.directory, step, "ema");
        ASSERT_EQ(ema.size(), average.size()) << what;
        double furthest = 0;
        for (std::size_t i = 0; i < ema.size(); ++i) {
            average[i] = kDecay * average[i] + (1 - kDecay) * static_cast<double>(values[i]);
            furthest = std::max(furthest, std::abs(average[i] - static_cast<double>(ema[i])));
        }
        EXPECT_LT(furthest, 1e-7) << what << ", step " << step;
    }
    double moved = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
        moved = std::max(moved, std::abs(average[i] - static_cast<double>(values[i])));
    EXPECT_GT(moved, 1e-4) << "the average is the values, so nothing is seen";
}

TEST(Average, IsThatOfFloat64) {
    const struct {
        const char* what;
        std::function<void(Settings&)> change;
        std::vector<std::string> freeze = {};
    } cases[] = {
        {"adam", [](Settings&) {}},
        {"sgd",
         [](Settings& s) {
             s.optimizer = Optimization::sgd;
             s.rate.rate = 0.05;
         }},
        {"sharded", [](Settings& s) { s.shard_optimizer = true; }},
        {"decayed", [](Settings& s) { s.weight_decay = 0.1; }},
        {"bf16", [](Settings& s) { s.precision = Precision::bf16; }},
        {"frozen", [](Settings&) {}, {"ffn.1"}},
    };
    for (const auto& c : cases)
        for (const std::int64_t world : {1, 3}) {
            const Scratch directory;
            Settings settings = averaging(directory.path(), 4);
            settings.checkpoints.every = 1;
            settings.checkpoints.keep = 9;
            c.change(settings);
            ModelShape shape;
            shape.freeze = c.freeze;
            outcome_of(train_saved(world, settings, {}, pattern_set(), "ffn", shape));
            expect_average(settings, shape, c.what);
        }
}

TEST(Average, DoesNotChangeWhatIsLearnt) {
    const Scratch with, without;
    Settings plain = averaging(without.path(), 5);
    plain.ema_decay.reset();
    EXPECT_EQ(outcome_of(train_saved(2, averaging(with.path(), 5))).parameters_hash,
              outcome_of(train_saved(2, plain)).parameters_hash);
}

TEST(Average, GoesOnWithTheSameBits) {
    for (const bool shards : {false, true}) {
        const Scratch whole, parted;
        Settings settings = averaging(whole.path(), 8);
        settings.shard_optimizer = shards;
        outcome_of(train_saved(2, settings));
        settings.checkpoints.directory = parted.path();
        settings.max_steps = 3;
        outcome_of(train_saved(2, settings));
        settings.max_steps = 8;
        EXPECT_EQ(outcome_of(train_saved(2, settings)).resumed, 3);
        EXPECT_EQ(saved_numbers(parted.path(), 8, "ema"), saved_numbers(whole.path(), 8, "ema"));
    }
}

TEST(Average, NeitherBeginsNorEndsOnTheWay) {
    const Scratch with, without;
    Settings settings = averaging(with.path(), 2);
    outcome_of(train_saved(1, settings));
    settings.ema_decay.reset();
    settings.max_steps = 4;
    EXPECT_THAT(the_error(train_saved(1, settings)).message,
                HasSubstr("has an average of the parameters, which would end here; give --ema-decay, too"));
    settings.checkpoints.directory = without.path();
    outcome_of(train_saved(1, settings));
    settings.ema_decay = kDecay;
    settings.max_steps = 6;
    EXPECT_THAT(the_error(train_saved(1, settings)).message,
                HasSubstr("has no average of the parameters to go on with; leave out --ema-decay"));
}

TEST(Average, IsWhatASavedModelIsLoadedWith) {
    const Scratch directory;
    ModelShape shape;
    shape.freeze = {"ffn.1"};
    outcome_of(train_saved(2, averaging(directory.path(), 5), {}, pattern_set(), "ffn", shape));
    const auto device = open_cpu(1);
    for (const bool averaged : {false, true}) {
        const auto saved = open_saved_model("--checkpoint", directory.path(), {"", "", averaged});
        ASSERT_TRUE(saved) << saved.error().message;
        const auto model = saved->info->make(saved->shape);
        model->place(*device, std::nullopt, 1);
        ASSERT_TRUE(load_values(*saved, *model, *device));
        EXPECT_EQ(model->parameters().download(*device),
                  saved_numbers(directory.path(), 5, averaged ? "ema" : "values"));
    }
    EXPECT_NE(saved_numbers(directory.path(), 5, "ema"), saved_numbers(directory.path(), 5, "values"));
    const Scratch without;
    Settings plain = averaging(without.path(), 2);
    plain.ema_decay.reset();
    outcome_of(train_saved(1, plain));
    const auto none = open_saved_model("--checkpoint", without.path(), {"", "", true});
    ASSERT_FALSE(none);
    EXPECT_THAT(none.error().message,
                HasSubstr("has no average of the weights; leave out --weights, or train with --ema-decay"));
}

TEST(Average, TakesTheMemoryThatIsEstimated) {
    const auto model = find_model("ffn")->make({});
    Settings plain, averages;
    averages.ema_decay = kDecay;
    const auto before = estimate_memory({*model, plain, nullptr, 1}),
               after = estimate_memory({*model, averages, nullptr, 1});
    EXPECT_EQ(after.optimizer - before.optimizer, 4 * (model->parameters().padded_count() + kAverageScratch));
    const auto device = open_cpu(1);
    const std::int64_t held = device->memory().held();
    const std::int64_t all = model->parameters().padded_count();
    const Optimizer optimizer({Optimization::adam, 0, {}, kDecay}, *device, {0, all}, all);
    EXPECT_EQ(device->memory().held() - held, after.optimizer);
}

}  // namespace
}  // namespace dp::trainer
