// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/steps.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/base/statistics.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;

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
    void on_epoch(const EpochReport&, const Schedule&) override {}

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
    settings.checkpoints = {};  // nothing of this is to be gone on from
    settings.log_every = 0;
    const auto model = trial.info.make(trial.shape);
    SingleCommunicator alone;
    Stopwatch watch(device);
    DP_TRY(repeat_step(trial.info, *model, trial.data, settings, device, alone, steps, watch));
    return watch.time();
}

}  // namespace

Result<StepTime> time_steps(const Trial& trial, Device& device, double seconds) {
    constexpr double kLeast = 3, kMost = 200;
    auto first = time_of(trial, device, 2);
    if (!first || first->seconds > seconds) return first;
    const double steps = std::clamp(std::ceil(seconds / std::max(first->seconds, 1e-6)), kLeast, kMost);
    return time_of(trial, device, 1 + static_cast<std::int64_t>(steps));
}

}  // namespace dp::trainer
