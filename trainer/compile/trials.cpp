// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/trials.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "trainer/base/communicator.hpp"
#include "trainer/base/statistics.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/models/freezing.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;

// Relative to the fastest: this much slower is clearly slower, and even fewer threads need not be tried.
constexpr double kClearlySlower = 1.25, kClearlyFaster = 0.95;
constexpr double kUndisturbed = 0.85;

class Stopwatch final : public Observer {
 public:
    explicit Stopwatch(Device& device) : device_(device) {}
    void on_step(std::int64_t, std::int64_t step, const Schedule&) override {
        device_.synchronize();
        const auto now = Clock::now();
        if (step > 1) seconds_.push_back(std::chrono::duration<double>(now - began_).count());
        began_ = now;
        if (step == 1) cpu_before_ = cpu_seconds();
        cpu_after_ = cpu_seconds();
    }

    StepTime time() const {
        const double all = std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
        return {spread_of(seconds_).median, (cpu_after_ - cpu_before_) / all};
    }

 private:
    Device& device_;
    Clock::time_point began_;
    std::vector<double> seconds_;  // of each step but the first
    double cpu_before_ = 0, cpu_after_ = 0;

    // This thread's CPU time.
    static double cpu_seconds() {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }
};

Result<StepTime> time_of(const Trial& trial, Device& device, std::int64_t steps) {
    Settings settings = trial.settings;
    settings.checkpoints = {};  // nothing resumes from this
    settings.log_every = 0;
    const auto model = make_model(trial.info, trial.shape);
    SingleCommunicator alone;
    Stopwatch watch(device);
    DP_TRY(repeat_step(trial.info, *model, trial.data, settings, device, alone, steps, watch));
    return watch.time();
}

ThreadTrial fastest_of(std::span<const ThreadTrial> trials) {
    return *std::min_element(trials.begin(), trials.end(),
                             [](const auto& a, const auto& b) { return a.step.seconds < b.step.seconds; });
}

}  // namespace

Result<StepTime> time_steps(const Trial& trial, Device& device, double seconds) {
    constexpr double kLeast = 3, kMost = 200;
    auto first = time_of(trial, device, 2);
    if (!first || first->seconds > seconds) return first;
    const double steps = std::clamp(std::ceil(seconds / std::max(first->seconds, 1e-6)), kLeast, kMost);
    return time_of(trial, device, 1 + static_cast<std::int64_t>(steps));
}

Result<std::vector<ThreadTrial>> try_threads(const Trial& trial, int threads, double seconds) {
    std::vector<ThreadTrial> trials;
    for (int count = threads; count >= 1; count /= 2) {
        const auto took = DP_TRY(time_steps(trial, *open_cpu(count), seconds));
        trials.push_back({count, took});
        if (took.seconds > kClearlySlower * fastest_of(trials).step.seconds) break;
    }
    // Other programs make a trial slower, never faster: so the better of two rounds counts.
    for (ThreadTrial& one : trials) {
        const auto took = DP_TRY(time_steps(trial, *open_cpu(one.threads), seconds));
        if (took.seconds < one.step.seconds) one.step = took;
    }
    return trials;
}

bool is_disturbed(std::span<const ThreadTrial> trials) {
    return std::any_of(trials.begin(), trials.end(),
                       [](const auto& trial) { return trial.step.share < kUndisturbed; });
}

ThreadTrial best_of(std::span<const ThreadTrial> trials) {
    const ThreadTrial fastest = fastest_of(trials);
    const bool is_faster = fastest.step.seconds < kClearlyFaster * trials.front().step.seconds;
    return is_faster && !is_disturbed(trials) ? fastest : trials.front();
}

}  // namespace dp::trainer
