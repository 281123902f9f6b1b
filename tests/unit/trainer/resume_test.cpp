// SPDX-License-Identifier: Apache-2.0
//
// A training that was stopped and went on ends where one ends that was never stopped: bit for bit on as many
// ranks, within rounding on others.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "saved_training.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The first training stops somewhere behind step 20; the second makes the rest.
struct Interrupted {
    std::int64_t stopped_at = 0;
    std::vector<RankOf> rest;
};
Interrupted interrupted(const Settings& settings, std::int64_t world, std::int64_t world_of_the_rest,
                        const Dataset& data) {
    const auto first = train_saved(world, settings, 20, data);
    const Error stopped = the_error(first);
    EXPECT_EQ(stopped.fault, Fault::stopped);
    EXPECT_THAT(stopped.message, HasSubstr("received SIGUSR1: stopped after step "));
    for (const auto& rank : first) EXPECT_EQ(rank.seen.last_step, first[0].seen.last_step);
    EXPECT_GE(first[0].seen.last_step, 20);
    EXPECT_LT(first[0].seen.last_step, 69) << "nothing is left to be done";
    return {first[0].seen.last_step, train_saved(world_of_the_rest, settings, {}, data)};
}

void expect_the_same_curve(Settings settings, const Dataset& data) {
    for (const std::int64_t rest : {1, 2, 4}) {
        const Scratch whole_directory;
        settings.checkpoints.directory = whole_directory.path();
        const auto whole = train_saved(rest, settings, {}, data);
        const Outcome expected = outcome_of(whole);
        for (const std::int64_t first : {1, 2, 4}) {
            const Scratch directory;
            settings.checkpoints.directory = directory.path();
            const Interrupted other = interrupted(settings, first, rest, data);
            const Outcome outcome = outcome_of(other.rest);
            EXPECT_EQ(outcome.resumed, other.stopped_at);
            EXPECT_EQ(other.rest[0].seen.resumed, other.stopped_at);
            EXPECT_EQ(other.rest[0].seen.steps, 69 - other.stopped_at);
            EXPECT_EQ(outcome.skipped, expected.skipped);
            ASSERT_EQ(outcome.parameters.size(), expected.parameters.size());
            // The curve: the same epochs, but for those before the checkpoint.
            const auto& reports = other.rest[0].seen.reports;
            const auto& reference = whole[0].seen.reports;
            ASSERT_EQ(reports.size(), static_cast<std::size_t>(3 - (other.stopped_at - 1) / 23));
            for (std::size_t i = 0; i < reports.size(); ++i) {
                const EpochReport& right = reference[reference.size() - reports.size() + i];
                EXPECT_EQ(reports[i].epoch, right.epoch);
                EXPECT_EQ(reports[i].skipped, right.skipped);
                EXPECT_NEAR(reports[i].loss, right.loss, first == rest ? 0 : 1e-4 * right.loss);
                EXPECT_NEAR(reports[i].test_loss, right.test_loss,
                            first == rest ? 0 : 1e-4 * right.test_loss);
            }
            if (first == rest) {
                EXPECT_EQ(outcome.parameters_hash, expected.parameters_hash) << first << " ranks";
            }
            EXPECT_LT(relative_difference(expected.parameters, outcome.parameters), 1e-5)
                << first << " ranks, then " << rest;
        }
    }
}

TEST(Resume, WithAdamEndsWhereAnUninterruptedTrainingEnds) {
    expect_the_same_curve(saved_settings({}), pattern_set());
}

TEST(Resume, KnowsWhatHadStoppedIt) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.max_steps = 3;
    outcome_of(train_saved(2, settings));  // by itself
    settings.max_steps = std::nullopt;
    const auto stopped = train_saved(2, settings, 20);
    EXPECT_EQ(the_error(stopped).fault, Fault::stopped);
    const auto rest = train_saved(2, settings);
    ASSERT_TRUE(stopped[0].seen.resumed_from && rest[0].seen.resumed_from);
    EXPECT_EQ(stopped[0].seen.resumed_from->stopped_by, "");
    EXPECT_EQ(rest[0].seen.resumed_from->stopped_by, "SIGUSR1");
}

TEST(Resume, WithSgdEndsWhereAnUninterruptedTrainingEnds) {
    Settings settings = saved_settings({});
    settings.optimizer = Optimization::sgd;
    settings.rate = {LrDecay::cosine, 0.05, 0, 0.1};
    settings.weight_decay = 0.01;
    expect_the_same_curve(settings, pattern_set());
}

// Some samples make the gradients infinite: their steps are skipped, before and after the checkpoint.
TEST(Resume, RemembersWhatWasSkipped) {
    Dataset data = make_linear_regression();
    const float infinite = std::numeric_limits<float>::infinity();
    for (const std::size_t sample : {0, 300, 600, 900})
        std::memcpy(data.train.targets.bytes.data() + sample * sizeof infinite, &infinite, sizeof infinite);
    Settings settings;
    settings.epochs = 3;
    settings.batch = 40;  // 25 steps
    settings.skip_bad_steps = true;
    const Scratch whole_directory;
    settings.checkpoints.directory = whole_directory.path();
    const auto whole = train_saved(2, settings, {}, data, "linear");
    std::int64_t skipped_in_epochs = 0;
    for (const std::int64_t stop_after : {5, 26, 45}) {
        const Scratch directory;
        settings.checkpoints.directory = directory.path();
        EXPECT_EQ(the_error(train_saved(2, settings, stop_after, data, "linear")).fault, Fault::stopped);
        const auto saved = checkpoints_in(directory.path());
        ASSERT_EQ(saved.size(), 1u);
        skipped_in_epochs +=
            read_manifest(checkpoint_path(directory.path(), saved[0]))->progress.skipped_in_epoch;
        const auto rest = train_saved(2, settings, {}, data, "linear");
        EXPECT_EQ(outcome_of(rest).skipped, outcome_of(whole).skipped);
        EXPECT_EQ(outcome_of(rest).parameters_hash, outcome_of(whole).parameters_hash);
        const auto& reports = rest[0].seen.reports;
        for (const auto& report : reports)
            EXPECT_EQ(report.skipped,
                      whole[0].seen.reports[static_cast<std::size_t>(report.epoch - 1)].skipped);
    }
    EXPECT_GT(skipped_in_epochs, 0) << "none is in the part of an epoch that was saved";
}

TEST(Resume, GivesUpAfterTenBadStepsAlsoWhereTheyAreBeforeAndAfterIt) {
    Dataset data = make_linear_regression();
    Settings settings;
    settings.epochs = 1;
    settings.batch = 100;  // 10 steps
    settings.skip_bad_steps = true;
    std::vector<float> bad(1000, std::numeric_limits<float>::quiet_NaN());
    std::memcpy(data.train.targets.bytes.data(), bad.data(), bad.size() * sizeof(float));
    const Scratch directory;
    settings.checkpoints.directory = directory.path();
    EXPECT_EQ(the_error(train_saved(1, settings, 1, data, "linear")).fault, Fault::stopped);
    const Error error = the_error(train_saved(1, settings, {}, data, "linear"));
    EXPECT_THAT(error.message, HasSubstr("step 10: for 10 steps in a row"));
}

TEST(Resume, GivingUpKeepsTheCheckpointThatIsWrittenInTheBackground) {
    Dataset data = make_linear_regression();
    Settings settings;
    settings.epochs = 1;
    settings.batch = 100;
    settings.skip_bad_steps = true;
    std::vector<float> bad(1000, std::numeric_limits<float>::quiet_NaN());
    std::memcpy(data.train.targets.bytes.data(), bad.data(), bad.size() * sizeof(float));
    const Scratch directory;
    settings.checkpoints.directory = directory.path();
    settings.checkpoints.every = 1;
    settings.checkpoints.keep = 100;
    settings.checkpoints.is_async = true;
    const Error error = the_error(train_saved(2, settings, {}, data, "linear"));
    EXPECT_THAT(error.message, HasSubstr("step 10: for 10 steps in a row"));
    EXPECT_EQ(checkpoints_in(directory.path()).front(), 9);
}

// Batch norm looks at all ranks' batches together. What it has gathered is no parameter, and without it the
// tests would begin anew.
TEST(Resume, BatchNormGoesOnAsOnAnyNumberOfRanks) {
    ModelShape shape;
    shape.image_size = 16;
    shape.features = 2;
    const Dataset data = bright_pixels(40, 16);
    Settings settings;
    settings.epochs = 3;
    settings.batch = 4;  // 10 steps in each
    const Scratch whole_directory;
    settings.checkpoints.directory = whole_directory.path();
    const auto whole = train_saved(1, settings, {}, data, "unet2d", shape);
    for (const std::int64_t first : {1, 2, 4}) {
        for (const std::int64_t rest : {1, 2, 4}) {
            const Scratch directory;
            settings.checkpoints.directory = directory.path();
            EXPECT_EQ(the_error(train_saved(first, settings, 12, data, "unet2d", shape)).fault,
                      Fault::stopped);
            const auto ranks = train_saved(rest, settings, {}, data, "unet2d", shape);
            EXPECT_GE(outcome_of(ranks).resumed, 12);
            EXPECT_EQ(ranks[0].seen.resumed_from->samples_at_once, 4);
            EXPECT_EQ(ranks[0].seen.resumed_from->saved_samples_at_once, 4);
            for (std::size_t epoch : {1u, 2u}) {
                const EpochReport &right = whole[0].seen.reports.at(epoch),
                                  &report = ranks[0].seen.reports.at(epoch - 1);
                // What rounding makes of 20 steps; 3e-5 where the compiler does not optimise.
                EXPECT_NEAR(report.loss, right.loss, 5e-5 * right.loss) << first << " to " << rest;
                EXPECT_NEAR(report.test_loss, right.test_loss, 5e-5 * right.test_loss)
                    << first << " to " << rest;
            }
        }
    }
}

// What is left out is of the step and of the sample's place in it, whichever rank has it and since when.
TEST(Resume, GptLeavesOutTheSameOnAnyNumberOfRanks) {
    ModelShape shape;
    shape.gpt = {2, 24, 3, 10, 37};
    shape.gpt.hidden_dropout = 0.1f;
    const Dataset data = random_text(40, 10, 37);
    Settings settings;
    settings.epochs = 2;
    settings.batch = 4;  // 10 steps
    const auto trained = [&](std::int64_t ranks, std::optional<std::int64_t> ranks_at_first = {}) {
        const Scratch directory;
        settings.checkpoints.directory = directory.path();
        if (ranks_at_first) {
            const auto first = train_saved(*ranks_at_first, settings, 3, data, "gpt", shape);
            EXPECT_EQ(the_error(first).fault, Fault::stopped);
        }
        const Outcome outcome = outcome_of(train_saved(ranks, settings, {}, data, "gpt", shape));
        EXPECT_EQ(outcome.resumed > 0, ranks_at_first.has_value());
        return outcome;
    };
    const Outcome without = trained(1);
    shape.gpt.attention_dropout = 0.3f;
    const Outcome whole = trained(1);
    EXPECT_GT(relative_difference(whole.parameters, without.parameters), 1e-3)
        << "the test would prove nothing";
    EXPECT_EQ(trained(1, 1).parameters_hash, whole.parameters_hash);
    for (const auto& other : {trained(4), trained(4, 1), trained(1, 4)}) {
        EXPECT_NEAR(other.last.loss, whole.last.loss, 1e-6 * whole.last.loss);
        EXPECT_LT(relative_difference(whole.parameters, other.parameters), 1e-5);
    }
}

TEST(Resume, OfATrainingThatIsOverTrainsNothingAndReportsItsEnd) {
    const Scratch directory;
    const Settings settings = saved_settings(directory.path());
    const Outcome first = outcome_of(train_saved(2, settings));
    const auto again = train_saved(2, settings);
    const Outcome second = outcome_of(again);
    EXPECT_EQ(again[0].seen.steps, 0);
    EXPECT_EQ(second.resumed, 69);
    EXPECT_EQ(second.checkpoints, 0);
    EXPECT_EQ(second.parameters_hash, first.parameters_hash);
    EXPECT_EQ(second.last.loss, first.last.loss);
    EXPECT_EQ(second.last.test_loss, first.last.test_loss);
    EXPECT_EQ(second.samples_per_second, 0);
}

TEST(Resume, TrainsOnWhereMoreStepsAreAskedFor) {
    const Scratch directory, whole_directory;
    Settings settings = saved_settings(directory.path());
    settings.max_steps = 30;
    train_saved(2, settings);
    settings.max_steps = 50;
    const Outcome outcome = outcome_of(train_saved(2, settings));
    EXPECT_EQ(outcome.resumed, 30);
    settings.checkpoints.directory = whole_directory.path();
    EXPECT_EQ(outcome.parameters_hash, outcome_of(train_saved(2, settings)).parameters_hash);
}

// With --accumulate fewer ranks make the same global batch.
TEST(Resume, AccumulationMakesUpForFewerRanks) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.max_steps = 30;
    const Outcome first = outcome_of(train_saved(4, settings));
    settings.accumulate = 4;
    settings.batch = 16;
    settings.max_steps.reset();
    EXPECT_EQ(outcome_of(train_saved(1, settings)).resumed, 30);
}

// A line is about the steps of this training that it has not told of.
TEST(Resume, LogsGoOnAtTheSameSteps) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.log_every = 10;
    settings.max_steps = 25;
    const auto first = train_saved(2, settings);
    settings.max_steps = 45;
    const auto rest = train_saved(2, settings);
    std::vector<std::int64_t> steps;
    for (const auto& log : rest[0].seen.logs) steps.push_back(log.place.number);
    EXPECT_THAT(steps, ElementsAre(30, 40));
    const Scratch whole_directory;
    settings.checkpoints.directory = whole_directory.path();
    settings.log_every = 5;
    const auto whole = train_saved(2, settings);
    const auto& logs = whole[0].seen.logs;  // of 5, 10, …
    EXPECT_NEAR(rest[0].seen.logs[0].loss, logs[5].loss, 1e-9) << "of the steps 26 to 30";
    EXPECT_NEAR(rest[0].seen.logs[1].loss, (logs[6].loss + logs[7].loss) / 2, 1e-9);
}

// Of two epochs of 23 steps that are saved after every 10th: what a save and an epoch's end take is nobody's.
TEST(Resume, TheTimeOfALoggedStepIsWithoutCheckpointsAndTests) {
    using Clock = std::chrono::steady_clock;
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.epochs = 2;
    settings.log_every = 23;
    settings.checkpoints.every = 10;
    const ModelInfo& info = *find_model("ffn");
    std::chrono::duration<double> slept{}, whole{};
    const auto sleep = [&] {
        const auto from = Clock::now();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        slept += Clock::now() - from;
    };
    Seen seen;
    int saves = 0, ends = 0;
    seen.at_phase = [&](Phase phase) {
        if (phase != Phase::checkpoint || seen.steps == 0 || seen.steps == 46) return;
        ++saves;
        sleep();
    };
    seen.at_epoch = [&] {
        if (++ends == 1) sleep();
    };
    ThreadWorld(1).run([&](Communicator& alone) {
        const auto device = open_cpu(1);
        const auto model = info.make({});
        const auto from = Clock::now();
        const auto outcome = train(info, *model, pattern_set(), settings, *device, alone, seen);
        whole = Clock::now() - from;
        EXPECT_TRUE(outcome);
    });
    EXPECT_EQ(saves, 4);
    ASSERT_EQ(seen.logs.size(), 2u);
    const double told = 23 * (seen.logs[0].seconds_per_step + seen.logs[1].seconds_per_step);
    EXPECT_LE(told, whole.count() - slept.count());
}

}  // namespace
}  // namespace dp::trainer
