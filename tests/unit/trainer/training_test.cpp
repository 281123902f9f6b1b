// SPDX-License-Identifier: Apache-2.0
//
// The training loop with threads for ranks: worlds of any size with the same global batch end with the same
// model, ranks that differ are found out, and schedules and losses that cannot be are refused.
#include "trainer/training/training.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "devices.hpp"
#include "patterns.hpp"
#include "thread_world.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

class Silent final : public Observer {
 public:
    void on_step(std::int64_t, std::int64_t, const Schedule&) override { ++steps; }
    void on_epoch(const EpochReport& report, const Schedule&) override { reports.push_back(report); }
    void on_log(const LogReport& log, const Schedule&) override { logs.push_back(log); }
    bool wants_progress() const override { return true; }
    void on_progress(const ProgressReport& report) override { progress.push_back(report); }
    void on_test(const TestReport& report, const Schedule&) override { tests.push_back(report); }
    void on_phase(Phase phase) override { communications += phase == Phase::communication ? 1 : 0; }
    std::int64_t steps = 0, communications = 0;
    std::vector<EpochReport> reports;
    std::vector<LogReport> logs;
    std::vector<TestReport> tests;
    std::vector<ProgressReport> progress;
};

struct Trained {
    Outcome outcome;
    std::int64_t ranks_that_saw_equal = 0, communications = 0;
};

// Trains with `world` threads as ranks; `disturb` wraps each rank's communicator.
template <typename Disturb>
Trained train_with(const ModelInfo& info, const Dataset& data, Settings settings, std::int64_t world,
                   Disturb disturb, const ModelShape& shape = {}) {
    Trained trained;
    std::mutex mutex;
    settings.batch /= world;
    ThreadWorld(world).run([&](Communicator& ranks) {
        const auto device = open_cpu(1);
        const auto model = info.make(shape);
        Silent silent;
        auto disturbed = disturb(ranks);
        const auto outcome = train(info, *model, data, settings, *device, disturbed, silent);
        const std::lock_guard lock(mutex);
        ASSERT_TRUE(outcome) << outcome.error().message;
        EXPECT_EQ(silent.steps, outcome->schedule.total_steps);
        trained.ranks_that_saw_equal += outcome->equal_on_all_ranks ? 1 : 0;
        if (ranks.rank() != 0) return;
        trained.outcome = *outcome;
        trained.communications = silent.communications;
    });
    return trained;
}

// Passes everything on; the rank it is told to be wrong on gets one of all gradients wrong, once. Counts the
// sums of gradients.
class Disturbed final : public Communicator {
 public:
    Disturbed(Communicator& inner, std::int64_t wrong_rank, std::atomic<int>* sums = nullptr)
        : inner_(inner), wrong_rank_(wrong_rank), sums_(sums) {}
    std::string_view name() const override { return inner_.name(); }
    std::int64_t rank() const override { return inner_.rank(); }
    std::int64_t size() const override { return inner_.size(); }
    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        auto done = inner_.all_reduce(tensor, reduction);
        if (tensor.type() == Type::f32 && sums_ != nullptr) ++*sums_;
        if (tensor.type() == Type::f32 && rank() == wrong_rank_ && !done_) {
            tensor.data<float>()[5] += 1e-4f;
            done_ = true;
        }
        return done;
    }
    Result<void> all_gather(const Tensor& tensor) override { return inner_.all_gather(tensor); }
    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        return inner_.broadcast(tensor, root);
    }

 private:
    Communicator& inner_;
    std::int64_t wrong_rank_;
    std::atomic<int>* sums_;
    bool done_ = false;
};

auto undisturbed() {
    return [](Communicator& ranks) { return Disturbed(ranks, -1); };
}

// |a - b| / |a|, over all parameters.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
        norm += std::pow(static_cast<double>(a[i]), 2);
    }
    return std::sqrt(difference / norm);
}

void expect_worlds_agree(const ModelInfo& info, const Dataset& data, Settings settings,
                         const ModelShape& shape = {}) {
    const Outcome alone = train_with(info, data, settings, 1, undisturbed(), shape).outcome;
    EXPECT_EQ(alone.schedule.total_steps, *settings.max_steps);
    for (std::int64_t world : {2, 4, 8}) {
        const Trained many = train_with(info, data, settings, world, undisturbed(), shape);
        EXPECT_EQ(many.ranks_that_saw_equal, world);
        EXPECT_EQ(many.outcome.schedule.global_batch, alone.schedule.global_batch);
        ASSERT_EQ(many.outcome.parameters.size(), alone.parameters.size());
        EXPECT_LT(relative_difference(alone.parameters, many.outcome.parameters), 1e-5) << world << " ranks";
        EXPECT_NEAR(many.outcome.last.loss, alone.last.loss, 0.02 * alone.last.loss) << world << " ranks";
        EXPECT_NEAR(many.outcome.last.test_loss, alone.last.test_loss, 0.02 * alone.last.test_loss);
        ::testing::Test::RecordProperty(
            "relative_difference_" + std::to_string(world),
            fmt::format("{:.2e}", relative_difference(alone.parameters, many.outcome.parameters)));
    }
    // The comparison can tell: another seed is far away.
    settings.seed += 1;
    const Outcome other = train_with(info, data, settings, 1, undisturbed(), shape).outcome;
    EXPECT_GT(relative_difference(alone.parameters, other.parameters), 1e-2);
}

TEST(Training, FfnIsTheSameForEveryWorldSize) {
    Settings settings;
    settings.epochs = 10;
    settings.batch = 64;  // 23 steps an epoch
    settings.max_steps = 20;
    for (auto optimizer : {Optimization::sgd, Optimization::adam}) {
        settings.optimizer = optimizer;
        settings.rate.rate = optimizer == Optimization::sgd ? 0.05 : 1e-3;
        expect_worlds_agree(*find_model("ffn"), pattern_set(), settings);
    }
}

// Also in what it drops.
TEST(Training, CnnIsTheSameForEveryWorldSize) {
    Settings settings;
    settings.batch = 16;
    settings.max_steps = 4;
    settings.optimizer = Optimization::sgd;
    settings.rate.rate = 0.05;
    Dataset data = pattern_set();
    data.train = patterns(200, 2);
    data.test = patterns(40, 3);
    expect_worlds_agree(*find_model("cnn"), data, settings);
}

// Its batch norm looks at the whole batch, wherever the rows are.
TEST(Training, Unet2dIsTheSameForEveryWorldSize) {
    ModelShape shape;
    shape.image_size = 16;
    shape.features = 4;
    Settings settings;
    settings.batch = 16;
    settings.max_steps = 5;
    // Not Adam: a bias before a norm has no gradient, and Adam divides by it.
    settings.optimizer = Optimization::sgd;
    settings.rate.rate = 0.05;
    const Dataset data = bright_pixels(80, 16);
    expect_worlds_agree(*find_model("unet2d"), data, settings, shape);

    // What is waited for in 18 norms, forwards and backwards, is not work.
    const auto communications = [&](std::int64_t world) {
        return train_with(*find_model("unet2d"), data, settings, world, undisturbed(), shape).communications;
    };
    EXPECT_EQ(communications(2) - communications(1), 5 * 2 * 18 + 1) << "and once to begin with";

    // In two parts a step, each of which all ranks take at once.
    settings.accumulate = 2;
    settings.batch /= 2;
    expect_worlds_agree(*find_model("unet2d"), data, settings, shape);
}

// One of two ranks: what all ranks add up breaks off.
class CutOff final : public Communicator {
 public:
    std::string_view name() const override { return "cut off"; }
    std::int64_t rank() const override { return 0; }
    std::int64_t size() const override { return 2; }
    Result<void> all_reduce(const Tensor& tensor, Reduction) override {
        if (tensor.type() == Type::f64) return fail(Fault::world, "another rank has died");
        return {};
    }
    Result<void> all_gather(const Tensor&) override { return {}; }
    Result<void> broadcast(const Tensor&, std::int64_t) override { return {}; }
};

TEST(Training, EndsWithTheStepWhoseWholeBatchCouldNotBeAddedUp) {
    ModelShape shape;
    shape.image_size = 16;
    shape.features = 2;
    Settings settings;
    settings.batch = 4;
    const ModelInfo& info = *find_model("unet2d");
    const auto device = open_cpu(1);
    const auto model = info.make(shape);
    CutOff world;
    Silent silent;
    const auto outcome = train(info, *model, bright_pixels(40, 16), settings, *device, world, silent);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().fault, Fault::world);
    EXPECT_EQ(outcome.error().message, "another rank has died");
    EXPECT_EQ(silent.steps, 0);
}

TEST(Training, LinearIsTheSameForEveryWorldSize) {
    Settings settings;
    settings.epochs = 10;
    settings.batch = 160;  // 6 steps an epoch: the 10 steps cross epochs
    settings.max_steps = 10;
    expect_worlds_agree(*find_model("linear"), make_linear_regression(), settings);
}

TEST(Training, LinearConverges) {
    const ModelInfo& info = *find_model("linear");
    Settings settings;
    settings.epochs = 25;
    settings.batch = 250;
    const Outcome outcome = train_with(info, make_linear_regression(), settings, 1, undisturbed()).outcome;
    EXPECT_LT(outcome.last.test_loss, 1e-3);  // from about 0.4
    EXPECT_FALSE(outcome.last.test_accuracy);
}

TEST(Training, FfnLearnsThePatternsAndCountsEveryTestSampleOnce) {
    Settings settings;
    settings.epochs = 3;
    settings.batch = 60;
    const Outcome outcome = train_with(*find_model("ffn"), pattern_set(), settings, 3, undisturbed()).outcome;
    EXPECT_EQ(outcome.last.test_accuracy, 1.0);  // 203 samples on 3 ranks: neither lost nor counted twice
}

TEST(Training, ARankThatDiffersInOneParameterIsFoundOutByEveryRank) {
    Settings settings;
    settings.batch = 64;
    settings.max_steps = 3;
    settings.optimizer = Optimization::sgd;
    settings.rate.rate = 0.5;
    for (std::int64_t wrong : {0, 2}) {
        const Trained trained = train_with(*find_model("ffn"), pattern_set(), settings, 4,
                                           [wrong](Communicator& ranks) { return Disturbed(ranks, wrong); });
        EXPECT_EQ(trained.ranks_that_saw_equal, 0);
    }
}

TEST(Training, ALossThatIsNoNumberEndsTheRunWithAdvice) {
    const ModelInfo& info = *find_model("ffn");
    const auto device = open_cpu(1);
    SingleCommunicator single;
    Silent silent;
    Settings settings;
    settings.batch = 64;
    settings.optimizer = Optimization::sgd;
    settings.rate.rate = 1e30;
    const auto model = info.make({});
    const auto outcome = train(info, *model, pattern_set(), settings, *device, single, silent);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().fault, Fault::training);
    EXPECT_THAT(outcome.error().message, HasSubstr("--lr"));
}

// ---- accumulation, clipping, bad steps

// Also in what a cnn drops.
TEST(Training, AccumulatedBatchesAreOneLargeBatch) {
    Dataset data = pattern_set();
    data.train = patterns(200, 2);
    data.test = patterns(40, 3);
    for (const char* name : {"ffn", "cnn"}) {
        const ModelInfo& info = *find_model(name);
        Settings settings;
        settings.max_steps = 4;
        settings.optimizer = Optimization::sgd;
        settings.rate.rate = 0.05;
        settings.batch = 16;
        const Outcome whole = train_with(info, data, settings, 1, undisturbed()).outcome;
        for (const auto& [world, accumulate] : {std::pair{1, 4}, {2, 2}, {4, 4}}) {
            settings.accumulate = accumulate;
            settings.batch = 16 / accumulate;
            const Outcome parts = train_with(info, data, settings, world, undisturbed()).outcome;
            EXPECT_EQ(parts.schedule.global_batch, 16);
            EXPECT_LT(relative_difference(whole.parameters, parts.parameters), 1e-5) << name << world;
            EXPECT_NEAR(parts.last.loss, whole.last.loss, 1e-4 * whole.last.loss);
        }
        settings.accumulate = 1;
    }
}

TEST(Training, BatchesAreAccumulatedWithoutASumBetweenThem) {
    const auto sums_with = [](std::int64_t accumulate) {
        std::atomic<int> sums = 0;
        Settings settings;
        settings.max_steps = 3;
        settings.batch = 16 / accumulate;
        settings.accumulate = accumulate;
        train_with(*find_model("ffn"), pattern_set(), settings, 2,
                   [&](Communicator& ranks) { return Disturbed(ranks, -1, &sums); });
        return sums.load();
    };
    const int of_one_batch = sums_with(1);
    EXPECT_GE(of_one_batch, 3 * 2);  // at least one a step and rank
    EXPECT_EQ(sums_with(4), of_one_batch);
}

std::vector<float> after_one_step(double rate, std::optional<double> clip) {
    Settings settings;
    settings.batch = 64;
    settings.max_steps = 1;
    settings.optimizer = Optimization::sgd;
    settings.rate.rate = rate;
    settings.clip = clip;
    return train_with(*find_model("ffn"), pattern_set(), settings, 2, undisturbed()).outcome.parameters;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
    return std::sqrt(sum);
}

TEST(Training, ClipsTheNormOfAllGradientsTogether) {
    // What a step of SGD moves is rate x gradient.
    const double norm = distance(after_one_step(0.5, {}), after_one_step(1.5, {}));
    ASSERT_GT(norm, 0.1);
    EXPECT_NEAR(distance(after_one_step(0.5, norm / 4), after_one_step(1.5, norm / 4)), norm / 4,
                1e-4 * norm);
    EXPECT_EQ(after_one_step(0.5, norm * 4), after_one_step(0.5, {})) << "smaller ones stay as they are";
}

Dataset line_with(float target, std::size_t samples) {
    Dataset data = make_linear_regression();
    for (std::size_t i = 0; i < samples; ++i)
        std::memcpy(data.train.targets.bytes.data() + i * sizeof target, &target, sizeof target);
    return data;
}

TEST(Training, SkipsBadStepsOnAllRanksAlike) {
    const ModelInfo& info = *find_model("linear");
    const Dataset data = line_with(std::numeric_limits<float>::infinity(), 1);
    Settings settings;
    settings.epochs = 3;
    settings.batch = 200;
    for (const bool by_clip : {false, true}) {
        settings.clip = by_clip ? std::optional(1e6) : std::nullopt;
        settings.skip_bad_steps = !by_clip;
        std::optional<Outcome> alone;
        for (std::int64_t world : {1, 2, 4}) {
            const Trained trained = train_with(info, data, settings, world, undisturbed());
            EXPECT_EQ(trained.outcome.skipped, 3) << "one of each epoch";
            EXPECT_EQ(trained.ranks_that_saw_equal, world);
            EXPECT_TRUE(std::isfinite(trained.outcome.last.loss));
            if (!alone) alone = trained.outcome;
            EXPECT_LT(relative_difference(alone->parameters, trained.outcome.parameters), 1e-5);
            EXPECT_NEAR(trained.outcome.last.loss, alone->last.loss, 0.02 * alone->last.loss);
        }
    }
}

TEST(Training, GivesUpWhereAllStepsAreBad) {
    const ModelInfo& info = *find_model("linear");
    const Dataset data = line_with(std::numeric_limits<float>::quiet_NaN(), 1000);
    const auto device = open_cpu(1);
    SingleCommunicator single;
    Silent silent;
    Settings settings;
    settings.batch = 20;
    settings.skip_bad_steps = true;
    const auto model = info.make({});
    const auto outcome = train(info, *model, data, settings, *device, single, silent);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().fault, Fault::training);
    EXPECT_THAT(outcome.error().message, HasSubstr("step 10: for 10 steps in a row"));
}

// ---- logs of steps

Silent logged(const Dataset& data, Settings settings) {
    const ModelInfo& info = *find_model("ffn");
    const auto device = open_cpu(1);
    SingleCommunicator single;
    Silent seen;
    settings.epochs = 3;
    settings.batch = 60;  // 25 steps an epoch
    settings.max_steps = 60;
    settings.log_every = 10;
    const auto model = info.make({});
    const auto outcome = train(info, *model, data, settings, *device, single, seen);
    EXPECT_TRUE(outcome);
    return seen;
}

TEST(Training, LogsAreAboutAllStepsSinceTheLast) {
    for (const bool guarded : {false, true}) {
        Settings settings;
        settings.skip_bad_steps = guarded;
        settings.rate = {LrDecay::linear, 1e-3, 0, 0};
        const Silent seen = logged(pattern_set(), settings);
        std::vector<std::array<std::int64_t, 3>> places;
        double by_logs = 0, by_epochs = 0;
        for (const LogReport& log : seen.logs) {
            places.push_back({log.place.number, log.place.epoch, log.place.step});
            by_logs += 10 * log.loss;
            EXPECT_GT(log.seconds_per_step, 0);
            EXPECT_GT(log.gradient_norm, 0) << (guarded ? "guarded" : "not guarded");
            EXPECT_DOUBLE_EQ(log.rate, rate_at(settings.rate, log.place.number, 60));
            EXPECT_EQ(log.skipped, 0);
        }
        const std::vector<std::array<std::int64_t, 3>> expected{{10, 1, 10}, {20, 1, 20}, {30, 2, 5},
                                                                {40, 2, 15}, {50, 2, 25}, {60, 3, 10}};
        EXPECT_EQ(places, expected);
        for (std::size_t i = 0; i < seen.reports.size(); ++i)
            by_epochs += static_cast<double>(i < 2 ? 25 : 10) * seen.reports[i].loss;
        EXPECT_NEAR(by_logs, by_epochs, 1e-6 * by_epochs);
    }
}

TEST(Training, IsTestedWithinAnEpochToo) {
    Settings settings;
    const Silent without = logged(pattern_set(), settings);
    EXPECT_TRUE(without.tests.empty());
    settings.test_every = 10;
    const Silent all = logged(pattern_set(), settings);
    settings.test_batches = 1'000'000;
    const Silent enough = logged(pattern_set(), settings);
    settings.test_batches = 1;
    const Silent some = logged(pattern_set(), settings);
    std::vector<std::int64_t> steps;
    for (std::size_t i = 0; i < all.tests.size(); ++i) {
        steps.push_back(all.tests[i].place.number);
        EXPECT_EQ(all.tests[i].loss, enough.tests.at(i).loss);
        EXPECT_NE(all.tests[i].loss, some.tests.at(i).loss);
        ASSERT_TRUE(all.tests[i].accuracy);
        EXPECT_FALSE(all.tests[i].perplexity);
        EXPECT_GT(all.tests[i].seconds, 0);
    }
    EXPECT_EQ(steps, (std::vector<std::int64_t>{10, 20, 30, 40}))
        << "an epoch ends with step 50, and all with 60";
    EXPECT_LT(all.tests.back().loss, all.tests.front().loss);
    for (std::size_t i = 0; i < without.reports.size(); ++i)
        EXPECT_EQ(without.reports[i].loss, some.reports[i].loss) << "a test changes nothing";
}

// Of a rank alone they are about the samples of the epochs' reports.
TEST(Training, ProgressIsToldAtTheEndOfEachEpochAtLeast) {
    for (const bool guarded : {false, true}) {
        Settings settings;
        settings.skip_bad_steps = guarded;
        const Silent seen = logged(pattern_set(), settings);
        ASSERT_GE(seen.progress.size(), 3u);
        std::vector<double> losses(seen.reports.size());
        std::int64_t before = 0;
        for (const ProgressReport& one : seen.progress) {
            EXPECT_GT(one.samples_per_second, 0);
            const auto epoch = static_cast<std::size_t>(one.place.epoch - 1);
            losses.at(epoch) += one.loss.value() * static_cast<double>(one.place.number - before);
            before = one.place.number;
        }
        EXPECT_EQ(before, 60);
        const std::array<double, 3> steps{25, 25, 10};
        for (std::size_t epoch = 0; epoch < losses.size(); ++epoch)
            EXPECT_NEAR(losses[epoch] / steps[epoch], seen.reports[epoch].loss, 1e-6) << epoch;
    }
}

TEST(Training, LogsOfSingleStepsAreAboutTheFirstOfAnEpochAndEachTenthAfterIt) {
    Settings settings;
    settings.log_single = true;
    const Silent seen = logged(pattern_set(), settings);
    std::vector<std::array<std::int64_t, 2>> places;
    for (const LogReport& log : seen.logs) places.push_back({log.place.epoch, log.place.step});
    const std::vector<std::array<std::int64_t, 2>> expected{{1, 1},  {1, 11}, {1, 21}, {2, 1},
                                                            {2, 11}, {2, 21}, {3, 1}};
    EXPECT_EQ(places, expected);
    EXPECT_NEAR(seen.logs[0].loss, std::log(10.0), 0.5) << "nothing is learnt yet";
    EXPECT_LT(seen.logs.back().loss, 0.2 * seen.logs[0].loss);
}

// ---- the same training on every device

class TrainingOnDevice : public OnEachDevice {};

TEST_P(TrainingOnDevice, EndsWhereTheCpuEnds) {
    for (const char* name : {"linear", "ffn", "cnn"}) {
        const ModelInfo& info = *find_model(name);
        const Dataset data =
            info.data == DataSet::linear_regression ? make_linear_regression() : pattern_set();
        Settings settings;
        settings.epochs = 2;
        settings.batch = 60;
        settings.max_steps = 20;
        SingleCommunicator single;
        std::vector<Outcome> outcomes;
        const auto cpu = open_cpu(1);
        for (Device* one : {cpu.get(), &device()}) {
            Silent silent;
            const auto model = info.make({});
            auto outcome = train(info, *model, data, settings, *one, single, silent);
            ASSERT_TRUE(outcome) << outcome.error().message;
            outcomes.push_back(std::move(*outcome));
        }
        EXPECT_LT(relative_difference(outcomes[0].parameters, outcomes[1].parameters), 1e-4) << info.name;
        EXPECT_NEAR(outcomes[1].last.loss, outcomes[0].last.loss, 0.02 * outcomes[0].last.loss) << info.name;
    }
}

INSTANTIATE_ON_EACH_DEVICE(TrainingOnDevice);

// ---- schedules: a pure function

// A model of text that has one parameter and only looks at what it is given.
class Reader final : public Model {
 public:
    explicit Reader(std::vector<std::vector<std::int32_t>>& seen) : seen_(seen) {
        parameters_.add("unused", {1}, Initial::constant(0));
    }
    void place(Device& device, std::optional<std::uint64_t> seed, std::int64_t, Type) override {
        device_ = &device;
        parameters_.place(device, seed);
    }
    void evaluate(const Batch& batch, const Tensor&) override { look(batch); }
    void forward_backward(const Batch& batch, float, const Tensor&) override { look(batch); }
    double forward_flops_per_sample() const override { return 1; }
    std::int64_t activations_per_sample() const override { return 1; }
    std::int64_t widest_operation(std::int64_t) const override { return 0; }

 private:
    Device* device_ = nullptr;
    std::vector<std::vector<std::int32_t>>& seen_;

    void look(const Batch& batch) {
        ASSERT_EQ(batch.x.type(), Type::i32);
        ASSERT_EQ(batch.target.type(), Type::i32);
        const auto x = device_->values_of<std::int32_t>(batch.x),
                   y = device_->values_of<std::int32_t>(batch.target);
        ASSERT_EQ(x.size(), static_cast<std::size_t>(batch.x.rows() * 4));
        ASSERT_EQ(x.size(), y.size());
        for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], x[i] + 1) << "token " << i;
        for (std::size_t row = 0; row * 4 < x.size(); ++row)
            seen_.push_back({x.begin() + static_cast<std::ptrdiff_t>(row * 4),
                             x.begin() + static_cast<std::ptrdiff_t>(row * 4 + 4)});
    }
};

// Tokens that count up from `first`.
Split counting_tokens(std::int64_t sequences, int first) {
    Split samples;
    samples.count = sequences;
    samples.features = {Type::u16, 4, {}};
    samples.targets = {Type::u16, 4, {}};
    samples.next_is_target = true;
    for (int token = first; token <= first + sequences * 4; ++token) {
        samples.features.bytes.push_back(static_cast<std::uint8_t>(token & 0xFF));
        samples.features.bytes.push_back(static_cast<std::uint8_t>(token >> 8));
    }
    return samples;
}

TEST(Training, AModelOfTextIsGivenEachSequenceOnceWithTheNextTokensAsTargets) {
    const Dataset text{counting_tokens(6, 60000), counting_tokens(5, 100), "counted"};
    std::vector<std::vector<std::int32_t>> seen;
    std::mutex mutex;
    ThreadWorld(2).run([&](Communicator& ranks) {
        std::vector<std::vector<std::int32_t>> mine;
        const auto device = open_cpu(1);
        Reader model(mine);
        Silent silent;
        Settings settings;
        settings.batch = 3;
        const auto done = train(*find_model("ffn"), model, text, settings, *device, ranks, silent);
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(done) << done.error().message;
        seen.insert(seen.end(), mine.begin(), mine.end());
    });
    std::sort(seen.begin(), seen.end());
    std::vector<std::vector<std::int32_t>> expected;
    for (int first : {100, 104, 108, 112, 116, 60000, 60004, 60008, 60012, 60016, 60020})
        expected.push_back({first, first + 1, first + 2, first + 3});
    EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace dp::trainer
