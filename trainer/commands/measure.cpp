// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trainer/parallel/agreement.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kSplitSteps = 20;    // whose parts are measured
constexpr std::int64_t kRecordedSteps = 5;  // whose operations are recorded

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

// Of all threads of this process.
double cpu_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

std::int64_t timed_steps(const MeasureOptions& options) {
    return options.warmup + options.iterations + std::min(options.iterations, kSplitSteps);
}

// Times steps, as they follow each other on the device, and then the parts of kSplitSteps more, each of which the device finishes
// before the next.
class Stopwatch final : public Observer {
 public:
    Stopwatch(Device& device, const MeasureOptions& options, ProfileRecorder* recorder)
        : device_(device),
          timestamps_(device.make_timestamps()),
          recorder_(recorder),
          warmup_(options.warmup),
          whole_(options.warmup + options.iterations),
          timed_(timed_steps(options)) {}

    void on_step_begin() override {
        if (recorder_ != nullptr) recorder_->on_step_begin();
        if (made_ != warmup_) return;
        timestamps_->take();
        cpu_began_ = cpu_seconds();
    }
    void on_phase(Phase next) override {
        if (splits_) take_phase();
        phase_ = next;
    }
    void on_step(std::int64_t, std::int64_t step, const Schedule&) override {
        if (recorder_ != nullptr) recorder_->on_step();
        made_ = step;
        if (splits_) take_phase();
        if (step < whole_) {
            if (step > warmup_) timestamps_->take();
            return;
        }
        if (step == whole_) {
            timestamps_->take();
            steps_ = timestamps_->between();
            cpu_seconds_ = cpu_seconds() - cpu_began_;
            phase_began_ = Clock::now();
        }
        device_.synchronize();
        splits_ = step < timed_;
    }

    const std::vector<double>& steps() const { return steps_; }  // seconds of each
    double cpu_time() const { return cpu_seconds_; }             // of all of them
    double communication_share() const { return communication_ / (communication_ + other_); }

 private:
    Device& device_;
    std::unique_ptr<Timestamps> timestamps_;  // around the steps that are measured
    ProfileRecorder* recorder_;               // null: no operations are recorded
    std::int64_t warmup_, whole_, timed_, made_ = 0;
    bool splits_ = false;
    Phase phase_ = Phase::idle;
    Clock::time_point phase_began_;
    std::vector<double> steps_;
    double cpu_began_ = 0, cpu_seconds_ = 0;
    double communication_ = 0, other_ = 0;

    void take_phase() {
        device_.synchronize();
        const auto now = Clock::now();
        (phase_ == Phase::communication ? communication_ : other_) += seconds_between(phase_began_, now);
        phase_began_ = now;
    }
};

Result<double> sum_of_all_ranks(double number, Device& device, Communicator& communicator) {
    const Tensor tensor = device.copy_of<double>(Type::f64, {1}, std::array{number});
    DP_TRY(communicator.all_reduce(tensor, Reduction::sum));
    DP_TRY(communicator.confirm());
    return device.values_of<double>(tensor)[0];
}

}  // namespace

StepRange steps_to_record(const MeasureOptions& options) {
    const std::int64_t timed = timed_steps(options);
    return {timed + 1, timed + kRecordedSteps};
}

std::string time_text(double seconds) {
    return seconds < 1 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

Result<Measurement> measure(const ModelInfo& info, Model& model, const Dataset& data,
                            const Settings& settings, const MeasureOptions& options, Device& device,
                            const Ranks& ranks, ProfileRecorder* recorder) {
    Stopwatch watch(device, options, recorder);
    const std::int64_t steps = recorder != nullptr ? steps_to_record(options).last : timed_steps(options);
    if (recorder != nullptr) recorder->follow(model.parameters(), ranks.data, device.memory(), steps);
    DP_TRY(repeat_step(info, model, data, settings, device, ranks, steps, watch));

    const double total = std::accumulate(watch.steps().begin(), watch.steps().end(), 0.0);
    const auto slowest = DP_TRY(largest_of_all_ranks(total, device, ranks.world));
    const auto most = DP_TRY(largest_of_all_ranks(watch.communication_share(), device, ranks.world));
    const auto least = DP_TRY(largest_of_all_ranks(-watch.communication_share(), device, ranks.world));
    const auto worked = DP_TRY(sum_of_all_ranks(watch.cpu_time(), device, ranks.world));
    const std::int64_t global_batch = settings.batch * settings.accumulate * ranks.data.size();
    const auto samples = static_cast<double>(options.iterations * global_batch);
    return Measurement{options.iterations,
                       options.warmup,
                       settings.batch,
                       settings.accumulate,
                       global_batch,
                       spread_of(watch.steps()),
                       samples / slowest,
                       worked / samples,
                       3 * model.forward_flops_per_sample(),
                       -least,
                       most};
}

std::string measurement_table(const Measurement& measured) {
    const double rate = measured.samples_per_second;
    const auto row = [](std::string_view name, const std::string& value) {
        return fmt::format("  {:<22}{}\n", name, value);
    };
    std::string table =
        row("steps", fmt::format("{} (after {} to warm up)", measured.iterations, measured.warmup)) +
        row("global batch", fmt::format("{} samples", measured.global_batch)) +
        row("step, median", time_text(measured.step.median)) +
        row("step, 5 % to 95 %",
            fmt::format("{} to {}", time_text(measured.step.p5), time_text(measured.step.p95))) +
        row("step, least to most",
            fmt::format("{} to {}", time_text(measured.step.min), time_text(measured.step.max))) +
        row("throughput", fmt::format("{:.1f} samples/s", rate)) +
        row("CPU time", fmt::format("{} per sample", time_text(measured.cpu_seconds_per_sample))) +
        row("arithmetic", fmt::format("{:.2f} GFLOP/s", rate * measured.flops_per_sample / 1e9)) +
        row("communication",
            fmt::format("{:.1f} % of a step waits for it; up to {:.1f} % on ranks that wait for others",
                        measured.communication_least * 100, measured.communication_most * 100));
    table.pop_back();
    return table;
}

nlohmann::ordered_json measurement_json(const RunFacts& facts, const Measurement& measured) {
    const double rate = measured.samples_per_second;
    nlohmann::ordered_json json = json_of(facts, "measured");
    json.update({{"batch_size", measured.batch},
                 {"accumulate", measured.accumulate},
                 {"global_batch_size", measured.global_batch},
                 {"warmup", measured.warmup},
                 {"iterations", measured.iterations},
                 {"samples_per_second", rate},
                 {"cpu_seconds_per_sample", measured.cpu_seconds_per_sample},
                 {"step_ms_least", measured.step.min * 1e3},
                 {"step_ms_p05", measured.step.p5 * 1e3},
                 {"step_ms_median", measured.step.median * 1e3},
                 {"step_ms_p95", measured.step.p95 * 1e3},
                 {"step_ms_most", measured.step.max * 1e3},
                 {"flops_per_second", rate * measured.flops_per_sample},
                 {"communication_share_least", measured.communication_least},
                 {"communication_share_most", measured.communication_most},
                 {"memory_peak_bytes", facts.memory_peak}});
    if (facts.tokens_per_sample > 0)
        json["tokens_per_second"] = throughput_of(rate, facts.tokens_per_sample).rate;
    return json;
}

}  // namespace dp::trainer
