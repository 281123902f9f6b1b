// SPDX-License-Identifier: Apache-2.0
#include "trainer/reports/metrics_file.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/host_name.hpp"
#include "trainer/base/standard_streams.hpp"

namespace dp::trainer {
namespace {

// JSON has only finite numbers; nlohmann writes null for others.
std::string text_of(const nlohmann::ordered_json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Whether a killed run has left an unfinished line, to which ours must not be joined.
bool ends_in_mid_line(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return in.seekg(-1, std::ios::end) && in.get() != '\n';
}

// Undoes writing to a file that had that many bytes, or did not exist. Not for pipes or devices.
void take_back(const std::filesystem::path& file, std::optional<std::uintmax_t> bytes) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) return;
    if (bytes)
        std::filesystem::resize_file(file, *bytes, ignored);
    else
        std::filesystem::remove(file, ignored);
}

}  // namespace

std::string step_metrics(const std::string& run, double time, const LogReport& report,
                         const Schedule& schedule) {
    return text_of(
        {{"event", "step"},
         {"run", run},
         {"time", time},
         {"epoch", report.place.epoch},
         {"step", report.place.number},
         {"samples", report.place.number * schedule.global_batch},
         {"loss", report.loss},
         {"learning_rate", report.rate},
         {"gradient_norm", report.gradient_norm},
         {"samples_per_second", static_cast<double>(schedule.global_batch) / report.seconds_per_step},
         {"step_ms", report.seconds_per_step * 1e3},
         {"skipped", report.skipped}});
}

std::string epoch_metrics(const std::string& run, double time, const EpochReport& report,
                          const Schedule& schedule) {
    nlohmann::ordered_json json{
        {"event", "epoch"},
        {"run", run},
        {"time", time},
        {"epoch", report.epoch},
        {"step", std::min(report.epoch * schedule.steps_per_epoch, schedule.total_steps)},
        {"loss", report.loss},
        {"test_loss", report.test_loss}};
    if (report.test_accuracy) json["test_accuracy"] = *report.test_accuracy;
    if (report.test_perplexity) json["test_perplexity"] = *report.test_perplexity;
    json["samples_per_second"] = report.samples_per_second;
    json["seconds"] = report.seconds;
    json["skipped"] = report.skipped;
    return text_of(json);
}

std::string test_metrics(const std::string& run, double time, const TestReport& report) {
    nlohmann::ordered_json json{{"event", "test"},
                                {"run", run},
                                {"time", time},
                                {"epoch", report.place.epoch},
                                {"step", report.place.number},
                                {"test_loss", report.loss}};
    if (report.accuracy) json["test_accuracy"] = *report.accuracy;
    if (report.perplexity) json["test_perplexity"] = *report.perplexity;
    json["seconds"] = report.seconds;
    return text_of(json);
}

Result<std::unique_ptr<MetricsFile>> MetricsFile::open(const std::filesystem::path& file, std::string run,
                                                       const nlohmann::ordered_json& facts) {
    std::error_code none;
    const auto before = std::filesystem::file_size(file, none);
    const bool cut = ends_in_mid_line(file);
    std::ofstream out(file, std::ios::app);
    nlohmann::ordered_json start{{"event", "start"}, {"run", run}, {"time", time_now()}};
    start.update(facts);
    if (cut) out << '\n';
    out << text_of(start) << std::endl;
    if (!out) {
        const int why = errno;
        out.close();
        take_back(file, none ? std::nullopt : std::optional(before));
        return fail(Fault::usage, "--metrics: {} cannot be written: {}; give another file", file.string(),
                    std::strerror(why));
    }
    return std::unique_ptr<MetricsFile>(new MetricsFile(file, std::move(out), std::move(run)));
}

void MetricsFile::on_log(const LogReport& report, const Schedule& schedule) {
    write(step_metrics(run_, time_now(), report, schedule));
}

void MetricsFile::on_epoch(const EpochReport& report, const Schedule& schedule) {
    write(epoch_metrics(run_, time_now(), report, schedule));
}

void MetricsFile::on_test(const TestReport& report, const Schedule&) {
    write(test_metrics(run_, time_now(), report));
}

// A full disk does not end a training, which is worth more than its metrics.
void MetricsFile::write(const std::string& line) {
    out_ << line << std::endl;  // the line and a flush
    if (out_ || complained_) return;
    complained_ = true;
    print_if_possible(
        stderr, fmt::format("trainer: {}: cannot write: {}; lines of --metrics are missing from here on\n",
                            file_.string(), std::strerror(errno)));
}

std::string name_of_this_run() {
    const auto variable = [](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value == nullptr ? "" : value);
    };
    if (const std::string job = variable("SLURM_JOB_ID"); !job.empty()) {
        const std::string step = variable("SLURM_STEP_ID"), restarts = variable("SLURM_RESTART_COUNT");
        return job + (step.empty() ? "" : "." + step) +
               (restarts.empty() || restarts == "0" ? "" : " restart " + restarts);
    }
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ} {} {}", fmt::gmtime(std::time(nullptr)), host_name(), getpid());
}

double time_now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace dp::trainer
