// SPDX-License-Identifier: Apache-2.0
//
// Who watches a training that is run: the report for people, the world, the profile, and files of metrics. run.cpp makes it.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/parallel/world.hpp"
#include "trainer/profile/recorder.hpp"
#include "trainer/reports/report.hpp"
#include "trainer/training/observer.hpp"

namespace dp::trainer {

// In the order of Phase.
inline constexpr std::array kPhases{DP_PHASE_IDLE, DP_PHASE_COMPUTE, DP_PHASE_LOAD, DP_PHASE_COMMUNICATION,
                                    DP_PHASE_CHECKPOINT};

// What a person sees, and what the world is told: in case this rank dies, and for dpctl top.
class Watching final : public Observer {
 public:
    // `recorder`: null where there is no --profile.
    Watching(Report& report, World& world, ProfileRecorder* recorder)
        : report_(report), world_(world), recorder_(recorder) {}
    // From now on it is told of logs and epochs, too.
    void add(std::unique_ptr<Observer> also) { also_.push_back(std::move(also)); }
    // Runs once per process, before the next step.
    void at_begin(std::function<Result<void>()> open) {
        if (!has_opened_) open_ = std::move(open);
    }
    Result<void> on_begin() override {
        if (!open_) return {};
        has_opened_ = true;
        return std::exchange(open_, {})();
    }
    void on_step_begin() override {
        if (recorder_ != nullptr) recorder_->on_step_begin();
    }
    void on_phase(Phase phase) override { world_.phase(kPhases[static_cast<std::size_t>(phase)]); }
    void on_step(std::int64_t epoch, std::int64_t step, const Schedule& schedule) override {
        if (recorder_ != nullptr) recorder_->on_step();
        world_.at_step((epoch - 1) * schedule.steps_per_epoch + step);
        report_.on_step(epoch, step, schedule);
    }
    void on_log(const LogReport& log, const Schedule& schedule) override {
        report_.on_log(log, schedule);
        for (const auto& other : also_) other->on_log(log, schedule);
    }
    bool wants_progress() const override { return world_.facts() != nullptr; }
    void on_progress(const ProgressReport& progress) override {
        if (progress.loss) world_.log_scalar("loss", *progress.loss);
        world_.log_scalar("samples_per_second", progress.samples_per_second);
    }
    void on_epoch(const EpochReport& epoch, const Schedule& schedule) override {
        world_.log_scalar("test_loss", epoch.test_loss);
        if (epoch.test_accuracy) world_.log_scalar("test_accuracy", *epoch.test_accuracy);
        report_.on_epoch(epoch, schedule);
        for (const auto& other : also_) other->on_epoch(epoch, schedule);
    }
    void on_test(const TestReport& test, const Schedule& schedule) override {
        world_.log_scalar("test_loss", test.loss);
        if (test.accuracy) world_.log_scalar("test_accuracy", *test.accuracy);
        report_.on_test(test, schedule);
        for (const auto& other : also_) other->on_test(test, schedule);
    }
    void on_early_stop(const std::string& why) override { report_.line(why); }
    void on_given_values(const std::string& what) override { report_.line(what); }
    void on_resume(const ResumeReport& resume, const Schedule& schedule) override {
        if (recorder_ != nullptr) recorder_->resumed(resume.step);
        report_.on_resume(resume, schedule);
    }
    void on_recovery(const RecoveryReport& recovery) override {
        if (recorder_ != nullptr) recorder_->resumed(recovery.step);
        report_.on_recovery(recovery);
    }
    void on_damaged(const std::string& what) override { report_.trouble(what); }
    void on_checkpoint(const CheckpointReport& checkpoint) override { report_.on_checkpoint(checkpoint); }

 private:
    Report& report_;
    World& world_;
    ProfileRecorder* recorder_;
    std::vector<std::unique_ptr<Observer>> also_;
    std::function<Result<void>()> open_;
    bool has_opened_ = false;
};

}  // namespace dp::trainer
