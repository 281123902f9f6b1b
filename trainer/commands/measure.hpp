// SPDX-License-Identifier: Apache-2.0
//
// `trainer measure-performance`: how fast a model trains here, on one batch again and again, so that neither
// the data set nor the tests of a training count. run.cpp prepares everything as for a training.
#pragma once

#include "trainer/base/statistics.hpp"
#include "trainer/profile/recorder.hpp"
#include "trainer/reports/report.hpp"

namespace dp::trainer {

struct MeasureOptions {
    std::int64_t iterations = 50;
    std::int64_t warmup = 10;
    bool per_operation = false;
};

struct Measurement {
    std::int64_t iterations, warmup;
    std::int64_t batch, accumulate, global_batch;
    Spread step;                    // seconds of a step on this rank
    double samples_per_second;      // of all ranks together, as the slowest one needs
    double cpu_seconds_per_sample;  // of all ranks together
    double flops_per_sample;        // forward and backward
    // The part of a step that waits for communication with nothing left to compute. That of the rank with the
    // least is what communication costs; the others also wait for slower ranks.
    double communication_least, communication_most;
};

// The steps after all that are timed, of which --per-operation records the operations.
StepRange steps_to_record(const MeasureOptions& options);

// Every rank calls. The model is not placed yet. `recorder`, of these steps: null without --per-operation.
Result<Measurement> measure(const ModelInfo& info, Model& model, const Dataset& data,
                            const Settings& settings, const MeasureOptions& options, Device& device,
                            const Ranks& ranks, ProfileRecorder* recorder = nullptr);

// Pure: "1.234 ms"; the table for people, the line for programs.
std::string time_text(double seconds);
std::string measurement_table(const Measurement& measured);
nlohmann::ordered_json measurement_json(const RunFacts& facts, const Measurement& measured);

}  // namespace dp::trainer
