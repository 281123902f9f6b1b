// SPDX-License-Identifier: Apache-2.0
//
// What the trainer prints, in the process that prints for its world: epochs, a progress line, the summary.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "trainer/reports/log_style.hpp"

namespace dp::trainer {

class Report final : public Observer {
 public:
    // `terminal`: keep a progress line on standard error, redrawn in place.
    Report(bool is_primary, bool terminal, LogStyle style = LogStyle::plain)
        : is_primary_(is_primary), terminal_(terminal), style_(style) {}

    // Whether this process is the one that prints: where ranks die, another may become it.
    void set_primary(bool is_primary) { is_primary_ = is_primary; }

    // For PyTorch's lines; see pytorch_line().
    void counts(std::int64_t samples, std::int64_t batch) {
        samples_ = samples;
        batch_ = batch;
    }

    void line(std::string_view text);     // to standard output
    void warning(std::string_view text);  // to standard error
    void trouble(std::string_view text);  // the same, also of a process that does not speak
    void on_step(std::int64_t epoch, std::int64_t step, const Schedule& schedule) override;
    void on_log(const LogReport& report, const Schedule& schedule) override;
    void on_epoch(const EpochReport& report, const Schedule& schedule) override;
    void on_test(const TestReport& report, const Schedule& schedule) override;
    void on_resume(const ResumeReport& report, const Schedule& schedule) override;
    void on_recovery(const RecoveryReport& report) override;
    void on_checkpoint(const CheckpointReport& report) override;

 private:
    using Clock = std::chrono::steady_clock;
    bool is_primary_;
    bool terminal_;
    LogStyle style_;
    std::int64_t samples_ = 0, batch_ = 0;
    bool drawn_ = false;  // a progress line stands on the terminal
    Clock::time_point last_drawn_{};
    std::int64_t first_done_ = 0;  // steps of the training when on_step() came first; 0: not yet
    Clock::time_point first_at_{};

    void erase();
};

struct Pace {
    std::int64_t epoch;  // from 1
    std::int64_t done;   // steps of the training
    // Since this process's first step, which does not count towards the rate: it is slower than others.
    std::int64_t steps;
    double seconds;
};

// Pure, times as in tqdm: "epoch 1/5  step 247/3247  [##                  ]   8 %  [00:04<00:59, 50.76it/s]".
std::string progress_line(const Pace& pace, const Schedule& schedule);
// Pure: the lines of an epoch and of a resumed training.
std::string recovery_line(const RecoveryReport& report);
std::string epoch_line(const EpochReport& report, std::int64_t epochs);
std::string test_line(const TestReport& report, std::int64_t steps);
std::string resume_line(const ResumeReport& report, std::int64_t steps);

// A training's throughput in its field's unit: tokens if `tokens_per_sample` is not 0, else samples.
struct Throughput {
    double rate;  // a second
    std::string_view unit;
};
Throughput throughput_of(double samples_per_second, std::int64_t tokens_per_sample);

// Pure: the message if a throughput violates one of the limits.
std::optional<std::string> throughput_problem(const Throughput& throughput, std::optional<double> least,
                                              std::optional<double> most);

// Facts about a run that the training loop does not know.
struct RunFacts {
    std::string_view model;
    std::string_view device;
    std::string_view communicator;
    std::int64_t world_size;
    std::uint64_t seed;
    double startup_seconds;        // from the start of the process until the training loop
    bool has_checkpoints = false;  // --checkpoint-dir
    std::string device_name = {};  // Device::description()
    int threads = 1;               // of a rank, on the CPU
    Precision precision = Precision::fp32;
    bool deterministic = false;  // --deterministic
    std::int64_t nodes = 1;
    std::int64_t tensor_parallel = 1;                // ranks that divide each layer
    bool sequence_parallel = false;                  // these divide the tokens, too
    std::int64_t pipeline_parallel = 1;              // stages of layers
    std::int64_t virtual_stages = 1;                 // of each stage
    std::vector<std::int64_t> pipeline_layers = {};  // of each of their chunks, in the model's order
    std::int64_t memory_peak = 0;                    // bytes of the device, of this rank
    std::int64_t tokens_per_sample = 0;              // of models of text
};

// Pure: what every JSON line begins with; the model is under `key`.
nlohmann::ordered_json json_of(const RunFacts& facts, std::string_view key = "model");

// Pure: the summary. Its keys never change; dp-trainer(1) documents them.
nlohmann::ordered_json summary_of(const RunFacts& facts, const Outcome& outcome);

}  // namespace dp::trainer
