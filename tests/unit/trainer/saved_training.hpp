// SPDX-License-Identifier: Apache-2.0
//
// A training with checkpoints, for tests: ffn on patterns, threads for ranks, a directory that goes away.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "patterns.hpp"
#include "scratch.hpp"
#include "thread_world.hpp"
#include "trainer/checkpoint/directory.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/models/freezing.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {

// What happened on a rank. `at_step` and `at_phase` are called when it does.
struct Seen final : Observer {
    std::int64_t steps = 0, last_step = 0;
    std::vector<EpochReport> reports;
    std::vector<LogReport> logs;
    std::vector<CheckpointReport> checkpoints;
    std::vector<std::int64_t> steps_at_checkpoints;
    std::optional<std::int64_t> resumed;
    std::optional<ResumeReport> resumed_from;
    std::vector<std::string> damaged, given_values, early_stops;
    std::vector<Phase> phases;
    std::function<void(std::int64_t)> at_step;
    std::function<void(Phase)> at_phase;
    std::function<void()> at_epoch;

    void on_phase(Phase phase) override {
        phases.push_back(phase);
        if (at_phase) at_phase(phase);
    }
    void on_step(std::int64_t epoch, std::int64_t step, const Schedule& schedule) override {
        ++steps;
        last_step = (epoch - 1) * schedule.steps_per_epoch + step;
        if (at_step) at_step(last_step);
    }
    void on_epoch(const EpochReport& report, const Schedule&) override {
        reports.push_back(report);
        if (at_epoch) at_epoch();
    }
    void on_log(const LogReport& log, const Schedule&) override { logs.push_back(log); }
    void on_given_values(const std::string& what) override { given_values.push_back(what); }
    void on_early_stop(const std::string& why) override { early_stops.push_back(why); }
    void on_resume(const ResumeReport& report, const Schedule&) override {
        resumed = report.step;
        resumed_from = report;
    }
    void on_damaged(const std::string& what) override { damaged.push_back(what); }
    void on_checkpoint(const CheckpointReport& report) override {
        checkpoints.push_back(report);
        steps_at_checkpoints.push_back(last_step);
    }
};

struct RankOf {
    Result<Outcome> outcome = fail(Fault::training, "did not run");
    Seen seen;
};

// 23 steps in each of 3 epochs; `batch` is the global one.
inline Settings saved_settings(const std::filesystem::path& directory) {
    Settings settings;
    settings.epochs = 3;
    settings.batch = 64;
    settings.checkpoints.directory = directory;
    return settings;
}

// Trains on so many ranks. Where `stop_after` is given the last rank is asked to stop after that step.
inline std::vector<RankOf> train_saved(std::int64_t world, Settings settings,
                                       std::optional<std::int64_t> stop_after = {},
                                       const Dataset& data = pattern_set(), const char* model_name = "ffn",
                                       const ModelShape& shape = {}) {
    const ModelInfo& info = *find_model(model_name);
    settings.batch /= world;
    std::vector<RankOf> ranks(static_cast<std::size_t>(world));
    ThreadWorld(world).run([&](Communicator& communicator) {
        RankOf& mine = ranks[static_cast<std::size_t>(communicator.rank())];
        Settings own = settings;
        int signal = 0;
        if (stop_after && communicator.rank() == world - 1) {
            own.checkpoints.stop_signal = [&] { return signal; };
            mine.seen.at_step = [&](std::int64_t step) { signal = step >= *stop_after ? SIGUSR1 : 0; };
        }
        const auto device = open_cpu(1);
        const auto model = make_model(info, shape);
        mine.outcome = train(info, *model, data, own, *device, communicator, mine.seen);
    });
    return ranks;
}

// All ranks ended, with the same parameters.
inline Outcome outcome_of(const std::vector<RankOf>& ranks) {
    for (const auto& rank : ranks) {
        EXPECT_TRUE(rank.outcome) << rank.outcome.error().message;
        if (!rank.outcome) return {};
        EXPECT_TRUE(rank.outcome->equal_on_all_ranks);
    }
    return *ranks[0].outcome;
}

// |a - b| / |a|, over all parameters.
inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
        norm += std::pow(static_cast<double>(a[i]), 2);
    }
    return std::sqrt(difference / norm);
}

// All ranks failed alike, and one of them says why.
inline Error the_error(const std::vector<RankOf>& ranks) {
    std::optional<Error> said;
    for (const auto& rank : ranks) {
        EXPECT_FALSE(rank.outcome);
        if (rank.outcome) continue;
        const Error& error = rank.outcome.error();
        EXPECT_EQ(error.fault, ranks[0].outcome.error().fault);
        EXPECT_TRUE(!said || error.message.empty()) << error.message;
        if (!error.message.empty()) said = error;
    }
    EXPECT_TRUE(said) << "no rank says why";
    return said.value_or(Error{Fault::training, ""});
}

inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace dp::trainer
