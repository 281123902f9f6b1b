// SPDX-License-Identifier: Apache-2.0
//
// --metrics: how a training goes, for programs, one JSON object a line. run.cpp opens it where this process
// speaks for its world. Lines are appended, so that a run that goes on after a checkpoint goes on here, too;
// each line says which run wrote it: where two runs have made the same step, the later one counts.
#ifndef TRAINER_REPORTS_METRICS_FILE_HPP
#define TRAINER_REPORTS_METRICS_FILE_HPP

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/base/result.hpp"
#include "trainer/training/observer.hpp"

namespace dp::trainer {

// Pure: the lines. `run`: which run it is; `time`: seconds since 1970.
std::string step_metrics(const std::string& run, double time, const LogReport& report,
                         const Schedule& schedule);
std::string epoch_metrics(const std::string& run, double time, const EpochReport& report,
                          const Schedule& schedule);

class MetricsFile final : public Observer {
 public:
    // Begins with a line of `facts` about the run. A file that cannot be written is the user's to mend, and
    // stays as it was.
    static Result<std::unique_ptr<MetricsFile>> open(const std::filesystem::path& file, std::string run,
                                                     const nlohmann::ordered_json& facts);

    void on_step(std::int64_t, std::int64_t, const Schedule&) override {}
    void on_log(const LogReport& report, const Schedule& schedule) override;
    void on_epoch(const EpochReport& report, const Schedule& schedule) override;

 private:
    std::filesystem::path file_;
    std::ofstream out_;
    std::string run_;
    bool complained_ = false;

    MetricsFile(std::filesystem::path file, std::ofstream out, std::string run)
        : file_(std::move(file)), out_(std::move(out)), run_(std::move(run)) {}
    void write(const std::string& line);
};

// Which run this is, in the words of whoever looks for it: Slurm's job and step and how often the job was
// started again, else when it began on which host.
std::string name_of_this_run();

// Seconds since 1970.
double time_now();

}  // namespace dp::trainer

#endif
