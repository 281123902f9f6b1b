// SPDX-License-Identifier: Apache-2.0
#include "trainer/reports/report.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/base/standard_streams.hpp"

namespace dp::trainer {
namespace {

constexpr int kWidth = 20;  // with this the line fits into 80 columns

// "01:03", "2:01:03"
std::string clock_text(double seconds) {
    const auto whole = static_cast<std::int64_t>(seconds);
    const std::string hours = whole < 3600 ? "" : fmt::format("{}:", whole / 3600);
    return fmt::format("{}{:02}:{:02}", hours, whole / 60 % 60, whole % 60);
}

// Steps per second; if slow, seconds per step.
std::string rate_text(double rate) {
    return rate >= 1 ? fmt::format("{:.2f}it/s", rate) : fmt::format("{:.2f}s/it", 1 / rate);
}

}  // namespace

void Report::erase() {
    if (!drawn_) return;
    print_if_possible(stderr, "\r\033[K");
    drawn_ = false;
}

void Report::line(std::string_view text) {
    if (!is_primary_) return;
    erase();
    print_if_possible(stdout, fmt::format("{}\n", text));
    std::fflush(stdout);  // under srun, standard output is a pipe: show lines when they happen
}

void Report::warning(std::string_view text) {
    if (is_primary_) trouble(text);
}

void Report::trouble(std::string_view text) {
    erase();
    print_if_possible(stderr, fmt::format("trainer: {}\n", text));
}

void Report::on_step(std::int64_t epoch, std::int64_t step, const Schedule& schedule) {
    if (!is_primary_ || !terminal_) return;
    const auto now = Clock::now();
    const std::int64_t done = (epoch - 1) * schedule.steps_per_epoch + step;
    if (first_done_ == 0) {
        first_done_ = done;
        first_at_ = now;
    }
    if (now - last_drawn_ < std::chrono::milliseconds(100)) return;
    last_drawn_ = now;
    drawn_ = true;
    const double seconds = std::chrono::duration<double>(now - first_at_).count();
    print_if_possible(stderr,
                      "\r\033[K" + progress_line({epoch, done, done - first_done_, seconds}, schedule));
    std::fflush(stderr);
}

void Report::on_log(const LogReport& report, const Schedule& schedule) {
    // With the other styles, only --metrics and --tensorboard want steps.
    if (!tells_steps(style_)) return;
    line(style_ == LogStyle::pytorch ? pytorch_line(report, schedule, samples_, batch_)
                                     : megatron_line(report, schedule));
}

void Report::on_epoch(const EpochReport& report, const Schedule& schedule) {
    line(epoch_line(report, schedule.epochs));
    const std::int64_t step = std::min(report.epoch * schedule.steps_per_epoch, schedule.total_steps);
    if (style_ == LogStyle::megatron)
        line(megatron_test_line(step, report.test_loss, report.test_perplexity));
}

void Report::on_test(const TestReport& report, const Schedule& schedule) {
    line(test_line(report, schedule.total_steps));
    if (style_ == LogStyle::megatron)
        line(megatron_test_line(report.place.number, report.loss, report.perplexity));
}

void Report::on_resume(const ResumeReport& report, const Schedule& schedule) {
    line(resume_line(report, schedule.total_steps));
}

std::string recovery_line(const RecoveryReport& report) {
    const std::string repeated = report.repeated ? fmt::format("; {} step{} repeated", *report.repeated,
                                                               *report.repeated == 1 ? "" : "s")
                                                 : "";
    if (report.from.empty())
        return fmt::format("the survivors do not hold the whole state: continuing after step {}{}",
                           report.step, repeated);
    const std::size_t givers = std::set(report.from.begin(), report.from.end()).size();
    return fmt::format(
        "continuing after step {} from {} memory; recovery took {:.2f} s{}", report.step,
        givers == 1 ? fmt::format("rank {}'s", report.from.front()) : fmt::format("{} ranks'", givers),
        report.seconds, repeated);
}

void Report::on_recovery(const RecoveryReport& report) {
    line(recovery_line(report));
}

void Report::on_checkpoint(const CheckpointReport& report) {
    if (!report.problem) {
        const std::string held =
            report.held ? fmt::format("; the training waited {:.2f} s", *report.held) : "";
        line(fmt::format("checkpoint {} written in {:.2f} s{}", report.path.string(), report.seconds, held));
    } else if (!report.problem->empty()) {
        trouble(fmt::format("step {} is not saved: {}; the checkpoints before it are whole", report.step,
                            *report.problem));
    }
}

std::string progress_line(const Pace& pace, const Schedule& schedule) {
    const auto share = static_cast<double>(pace.done) / static_cast<double>(schedule.total_steps);
    const bool known = pace.steps > 0 && pace.seconds > 0;
    const double rate = known ? static_cast<double>(pace.steps) / pace.seconds : 0;
    const auto left = static_cast<double>(schedule.total_steps - pace.done);
    return fmt::format("epoch {}/{}  step {}/{}  [{:<{}}] {:3.0f} %  [{}<{}, {}]", pace.epoch,
                       schedule.epochs, pace.done, schedule.total_steps,
                       std::string(static_cast<std::size_t>(std::lround(share * kWidth)), '#'), kWidth,
                       share * 100, clock_text(pace.seconds), known ? clock_text(left / rate) : "?",
                       known ? rate_text(rate) : "?it/s");
}

namespace {

std::string test_in_words(double loss, const std::optional<double>& accuracy,
                          const std::optional<double>& perplexity) {
    if (accuracy) return fmt::format("test accuracy {:.2f} %", *accuracy * 100);
    return fmt::format("test loss {:.3g}", loss) +
           (perplexity ? fmt::format(", perplexity {:.4g}", *perplexity) : "");
}

}  // namespace

std::string test_line(const TestReport& report, std::int64_t steps) {
    return fmt::format("step {}/{}  {}  {:.2f} s", report.place.number, steps,
                       test_in_words(report.loss, report.accuracy, report.perplexity), report.seconds);
}

std::string epoch_line(const EpochReport& report, std::int64_t epochs) {
    const std::string test = test_in_words(report.test_loss, report.test_accuracy, report.test_perplexity);
    std::string line = fmt::format("epoch {}/{}  loss {:.4g}  {}  {:.0f} samples/s  {:.2f} s", report.epoch,
                                   epochs, report.loss, test, report.samples_per_second, report.seconds);
    if (report.skipped > 0)
        line += fmt::format("  {} step{} skipped", report.skipped, report.skipped == 1 ? "" : "s");
    return line;
}

std::string resume_line(const ResumeReport& report, std::int64_t steps) {
    std::string line =
        fmt::format("resuming from {}: step {} of {}", report.path.string(), report.step, steps);
    if (report.precision != report.saved_precision)
        line +=
            fmt::format("; in {} until here, in {} from now on", report.saved_precision, report.precision);
    if (!report.stopped_by.empty()) line += fmt::format("; {} stopped it there", report.stopped_by);
    const std::int64_t before = report.saved_samples_at_once, now = report.samples_at_once;
    if (before != 0 && before != now)
        line += fmt::format(
            "; batch norm saw {} samples at once and sees {} from now on, which changes the training a "
            "little (keep ranks x --batch-size)",
            before, now);
    return line;
}

Throughput throughput_of(double samples_per_second, std::int64_t tokens_per_sample) {
    if (tokens_per_sample == 0) return {samples_per_second, "samples/s"};
    return {samples_per_second * static_cast<double>(tokens_per_sample), "tokens/s"};
}

std::optional<std::string> throughput_problem(const Throughput& throughput, std::optional<double> least,
                                              std::optional<double> most) {
    const auto& [rate, unit] = throughput;
    if (least && rate < *least)
        return fmt::format("{:.1f} {} is less than --min-throughput {}", rate, unit, *least);
    if (most && rate > *most)
        return fmt::format("{:.1f} {} is more than --max-throughput {}", rate, unit, *most);
    return std::nullopt;
}

nlohmann::ordered_json json_of(const RunFacts& facts, std::string_view key) {
    nlohmann::ordered_json json{{key, facts.model},
                                {"device", facts.device},
                                {"device_name", facts.device_name},
                                {"threads", facts.threads},
                                {"communicator", facts.communicator},
                                {"world_size", facts.world_size},
                                {"nodes", facts.nodes},
                                {"seed", facts.seed},
                                {"precision", name_of(facts.precision)},
                                {"deterministic", facts.deterministic}};
    if (facts.tensor_parallel > 1) json["tensor_parallel"] = facts.tensor_parallel;
    if (facts.sequence_parallel) json["sequence_parallel"] = true;
    if (facts.pipeline_parallel > 1) json["pipeline_parallel"] = facts.pipeline_parallel;
    if (!facts.pipeline_layers.empty()) json["pipeline_layers"] = facts.pipeline_layers;
    if (facts.virtual_stages > 1) json["virtual_stages"] = facts.virtual_stages;
    return json;
}

nlohmann::ordered_json summary_of(const RunFacts& facts, const Outcome& outcome) {
    nlohmann::ordered_json json = json_of(facts);
    json["epochs"] = outcome.schedule.epochs;
    json["steps"] = outcome.schedule.total_steps;
    json["global_batch_size"] = outcome.schedule.global_batch;
    json["final_loss"] = outcome.last.loss;
    json["test_loss"] = outcome.last.test_loss;
    if (outcome.last.test_accuracy) json["test_accuracy"] = *outcome.last.test_accuracy;
    if (outcome.last.test_perplexity) json["test_perplexity"] = *outcome.last.test_perplexity;
    json["samples_per_second"] = outcome.samples_per_second;
    if (outcome.bubble) json["pipeline_bubble"] = *outcome.bubble;
    if (facts.tokens_per_sample > 0)
        json["tokens_per_second"] = throughput_of(outcome.samples_per_second, facts.tokens_per_sample).rate;
    json["train_seconds"] = outcome.train_seconds;
    json["startup_seconds"] = facts.startup_seconds;
    json["memory_peak_bytes"] = facts.memory_peak;
    if (outcome.recovered.recoveries > 0) {
        json["recoveries"] = outcome.recovered.recoveries;
        json["recovery_seconds"] = outcome.recovered.seconds;
        json["steps_repeated"] = outcome.recovered.repeated;
    }
    if (outcome.stopped_after) {
        json["stopped_early"] = true;
        json["best_test_loss"] = outcome.stopped_after->loss;
        json["best_test_step"] = outcome.stopped_after->step;
    }
    if (outcome.skipped > 0) json["skipped_steps"] = outcome.skipped;
    if (outcome.resumed > 0) json["resumed_from_step"] = outcome.resumed;
    if (facts.has_checkpoints) json["checkpoints_written"] = outcome.checkpoints;
    json["parameters"] = outcome.parameters.size();
    json["parameters_hash"] = fmt::format("{:016x}", outcome.parameters_hash);
    json["parameters_equal_on_all_ranks"] = outcome.equal_on_all_ranks;
    return json;
}

}  // namespace dp::trainer
