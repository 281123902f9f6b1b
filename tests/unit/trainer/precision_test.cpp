// SPDX-License-Identifier: Apache-2.0
//
// Training in bf16: each model learns as in fp32, on each device; worlds of any size agree; a resumed
// training continues bit for bit, also in the other precision. Also what --deterministic promises.
#include <cmath>

#include "devices.hpp"
#include "saved_training.hpp"

namespace dp::trainer {
namespace {

// Small ones of each model.
ModelShape shape() {
    ModelShape small;
    small.image_size = 16;
    small.features = 4;
    small.gpt = {2, 48, 2, 16, 40};
    return small;
}

// Text in which a token mostly tells the next.
Split text(std::int64_t sequences) {
    const std::int64_t tokens = shape().gpt.sequence, count = sequences * tokens + 1;
    Random random(9, static_cast<std::uint64_t>(sequences));
    std::vector<std::uint16_t> words{1};
    while (static_cast<std::int64_t>(words.size()) < count) {
        const auto next = static_cast<std::uint16_t>((words.back() * 7 + 3) % 37);
        words.push_back(random.below(10) == 0 ? static_cast<std::uint16_t>(random.below(40)) : next);
    }
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(words.data());
    return {sequences, {Type::u16, tokens, {bytes, bytes + 2 * count}}, {}, {Type::u16, tokens, {}}, true};
}

Dataset data_for(const ModelInfo& info) {
    switch (info.data) {
        case DataSet::fashion_mnist:
            return {patterns(240, 2), patterns(40, 3), "patterns"};
        case DataSet::linear_regression:
            return make_linear_regression();
        case DataSet::segmentation:
            return bright_pixels(80, shape().image_size);
        case DataSet::tokens:
            return {text(240), text(40), "text"};
    }
    return {};
}

// `steps` of 8 samples each.
Settings settings_of(Precision precision, std::int64_t steps) {
    Settings settings;
    settings.batch = 8;
    settings.epochs = steps;
    settings.max_steps = steps;
    settings.log_every = 1;
    settings.precision = precision;
    return settings;
}

// With Adam: at which each learns in some steps, and the steps of `linear`, which has nothing between its
// layers, do not throw it about.
double rate_of(const ModelInfo& info) {
    return info.name == "linear" ? 3e-5 : info.name == "unet2d" ? 1e-2 : 1e-3;
}

std::vector<RankOf> train_ranks(const ModelInfo& info, const Settings& settings, std::int64_t world) {
    return train_saved(world, settings, {}, data_for(info), std::string(info.name).c_str(), shape());
}

class PrecisionTest : public OnEachDevice {
 protected:
    struct Trained {
        Outcome outcome;
        std::vector<double> losses;  // of each step
    };
    Trained train_alone(const ModelInfo& info, const Settings& settings) {
        SingleCommunicator alone;
        Seen seen;
        const auto model = info.make(shape());
        const auto outcome = train(info, *model, data_for(info), settings, device(), alone, seen);
        if (!outcome) ADD_FAILURE() << outcome.error().message;
        Trained trained{outcome.value_or(Outcome{}), {}};
        for (const auto& log : seen.logs) trained.losses.push_back(log.loss);
        return trained;
    }
};

TEST_P(PrecisionTest, EachModelLearnsInBf16AsInFp32) {
    constexpr std::int64_t kSteps = 40;
    for (const ModelInfo& info : kModels) {
        Settings settings = settings_of(Precision::fp32, kSteps);
        settings.rate.rate = rate_of(info);
        const auto wide = train_alone(info, settings);
        settings.precision = Precision::bf16;
        const auto narrow = train_alone(info, settings);
        ASSERT_EQ(narrow.losses.size(), static_cast<std::size_t>(kSteps)) << info.name;
        const double first = wide.losses.front();
        double furthest = 0;
        for (std::size_t i = 0; i < wide.losses.size(); ++i)
            furthest = std::max(furthest, std::abs(narrow.losses[i] - wide.losses[i]) / first);
        // bf16 keeps 8 bits: 0.4 % of each number, which mostly balance.
        EXPECT_LT(furthest, 0.03) << info.name;
        EXPECT_GT(furthest, 0) << info.name << ": is that bf16?";
        EXPECT_LT(narrow.losses.back(), 0.9 * first) << info.name << " learns nothing";
        EXPECT_NEAR(narrow.outcome.last.test_loss, wide.outcome.last.test_loss, 0.05 * first) << info.name;
        // What is learnt is f32: bf16 would have none of the steps that are smaller than its last bit.
        const auto& parameters = narrow.outcome.parameters;
        const auto representable = std::count_if(parameters.begin(), parameters.end(), [](float value) {
            return to_float(to_bfloat16(value)) == value;
        });
        EXPECT_LT(representable, static_cast<std::int64_t>(parameters.size()) / 2) << info.name;
        RecordProperty(std::string(info.name), std::to_string(furthest));
    }
}

INSTANTIATE_ON_EACH_DEVICE(PrecisionTest);

class DeterminismTest : public PrecisionTest {
 protected:
    Precision precision() const { return GetParam().ends_with("bf16") ? Precision::bf16 : Precision::fp32; }
};

TEST_P(DeterminismTest, TwoTrainingsEndWithTheSameBits) {
    device().set_deterministic(true);
    for (const ModelInfo& info : kModels) {
        Settings settings = settings_of(precision(), 12);
        settings.clip = 1;
        settings.accumulate = 2;
        const auto first = train_alone(info, settings), second = train_alone(info, settings);
        EXPECT_EQ(first.outcome.parameters_hash, second.outcome.parameters_hash) << info.name;
        EXPECT_EQ(first.losses, second.losses) << info.name;
        settings.seed = 2;
        EXPECT_NE(train_alone(info, settings).outcome.parameters_hash, first.outcome.parameters_hash);
    }
}

INSTANTIATE_ON_EACH_DEVICE_IN_EACH_PRECISION(DeterminismTest);

// With several ranks of several threads, which come to each operation in another order each time.
TEST(Determinism, OfSeveralRanksAndThreadsOnTheCpu) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "OpenMP's runtime is not instrumented: the thread sanitizer cannot see how its threads "
                    "synchronise";
#endif
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        for (const ModelInfo& info : kModels) {
            std::vector<std::uint64_t> hashes;
            for (int run = 0; run < 2; ++run) {
                ThreadWorld(2).run([&](Communicator& ranks) {
                    const auto device = open_cpu(2);
                    device->set_deterministic(true);
                    const auto model = info.make(shape());
                    Seen seen;
                    const auto outcome =
                        train(info, *model, data_for(info), settings_of(precision, 6), *device, ranks, seen);
                    ASSERT_TRUE(outcome) << outcome.error().message;
                    EXPECT_TRUE(outcome->equal_on_all_ranks);
                    if (ranks.rank() == 0) hashes.push_back(outcome->parameters_hash);
                });
            }
            ASSERT_EQ(hashes.size(), 2u);
            EXPECT_EQ(hashes[0], hashes[1]) << info.name << " in " << name_of(precision);
        }
    }
}

TEST(Bf16Training, WorldsOfAnySizeAgree) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "OpenMP's runtime is not instrumented: the thread sanitizer cannot see how its threads "
                    "synchronise";
#endif
    for (const ModelInfo& info : kModels) {
        const std::string_view name = info.name;
        Settings settings = settings_of(Precision::bf16, 10);
        settings.optimizer = Optimization::sgd;
        settings.rate.rate = info.name == "linear" ? 1e-4 : 0.01;
        const Outcome alone = outcome_of(train_ranks(info, settings, 1));
        for (const std::int64_t world : {2, 4}) {
            const Outcome many = outcome_of(train_ranks(info, settings, world));
            // Sums in another order, and now and then the other of two bf16 numbers.
            EXPECT_LT(relative_difference(alone.parameters, many.parameters), 1e-4) << name << world;
            EXPECT_NEAR(many.last.loss, alone.last.loss, 0.01 * alone.last.loss) << name << world;
        }
        settings.seed = 2;
        EXPECT_GT(
            relative_difference(alone.parameters, outcome_of(train_ranks(info, settings, 1)).parameters),
            1e-2)
            << "the comparison cannot tell";
    }
}

TEST(Bf16Training, ThatWasStoppedGoesOnBitForBit) {
    for (const ModelInfo& info : kModels) {
        for (const std::int64_t world : {1, 2}) {
            const Scratch whole_directory, directory;
            Settings settings = settings_of(Precision::bf16, 25);
            settings.checkpoints.directory = whole_directory.path();
            const Outcome whole = outcome_of(train_ranks(info, settings, world));
            settings.checkpoints.directory = directory.path();
            settings.max_steps = 10;
            outcome_of(train_ranks(info, settings, world));
            settings.max_steps = 25;
            const Outcome rest = outcome_of(train_ranks(info, settings, world));
            EXPECT_EQ(rest.resumed, 10);
            EXPECT_EQ(rest.parameters_hash, whole.parameters_hash) << info.name << ", ranks: " << world;
        }
    }
}

// A checkpoint holds what is learnt, in f32: also the other precision goes on from there.
TEST(Bf16Training, GoesOnFromACheckpointOfFp32AndTheOtherWayRound) {
    const ModelInfo& info = *find_model("ffn");
    for (const auto& [before, after] :
         {std::pair{Precision::fp32, Precision::bf16}, {Precision::bf16, Precision::fp32}}) {
        const Scratch directory;
        Settings settings = settings_of(before, 10);
        settings.checkpoints.directory = directory.path();
        const Outcome first = outcome_of(train_ranks(info, settings, 1));
        EXPECT_EQ(read_manifest(checkpoint_path(directory.path(), 10))->precision, name_of(before));
        settings.precision = after;
        settings.max_steps = 11;
        settings.rate.rate = 1e-9;  // stays where it is, but for the rounding
        const auto ranks = train_ranks(info, settings, 1);
        const Outcome second = outcome_of(ranks);
        EXPECT_EQ(second.resumed, 10);
        ASSERT_TRUE(ranks[0].seen.resumed_from);
        EXPECT_EQ(ranks[0].seen.resumed_from->precision, name_of(after));
        EXPECT_EQ(ranks[0].seen.resumed_from->saved_precision, name_of(before));
        EXPECT_LT(relative_difference(first.parameters, second.parameters), 1e-6);
        EXPECT_EQ(read_manifest(checkpoint_path(directory.path(), 11))->precision, name_of(after));
    }
}

}  // namespace
}  // namespace dp::trainer
