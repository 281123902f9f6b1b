// SPDX-License-Identifier: Apache-2.0
//
// --metrics: a training's progress for programs, one JSON object per line. Lines are appended, so that a
// resumed run continues the file; each names its run. If two runs took the same step, the later line counts.
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "trainer/training/observer.hpp"

namespace dp::trainer {

// Pure: the lines. `run`: the run's name; `time`: seconds since 1970.
std::string step_metrics(const std::string& run, double time, const LogReport& report,
                         const Schedule& schedule);
std::string epoch_metrics(const std::string& run, double time, const EpochReport& report,
                          const Schedule& schedule);
std::string test_metrics(const std::string& run, double time, const TestReport& report);

class MetricsFile final : public Observer {
 public:
    // Writes a first line with `facts` about the run. A file that cannot be written stays as it was.
    static Result<std::unique_ptr<MetricsFile>> open(const std::filesystem::path& file, std::string run,
                                                     const nlohmann::ordered_json& facts);

    void on_log(const LogReport& report, const Schedule& schedule) override;
    void on_epoch(const EpochReport& report, const Schedule& schedule) override;
    void on_test(const TestReport& report, const Schedule& schedule) override;

 private:
    std::filesystem::path file_;
    std::ofstream out_;
    std::string run_;
    bool complained_ = false;

    MetricsFile(std::filesystem::path file, std::ofstream out, std::string run)
        : file_(std::move(file)), out_(std::move(out)), run_(std::move(run)) {}
    void write(const std::string& line);
};

// As users would search for it: Slurm's job and step and the restart count, else start time and host.
std::string name_of_this_run();

// Seconds since 1970.
double time_now();

}  // namespace dp::trainer
