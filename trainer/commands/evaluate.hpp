// SPDX-License-Identifier: Apache-2.0
//
// `trainer evaluate`: the test of a checkpoint's model, on any data that it takes, by one rank or several. main.cpp calls it.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/commands/saved_model.hpp"
#include "trainer/commands/tasks.hpp"
#include "trainer/data/load.hpp"
#include "trainer/devices/open.hpp"
#include "trainer/reports/report.hpp"
#include "trainer/training/masks.hpp"

namespace dp::trainer {

struct EvaluateOptions {
    std::filesystem::path checkpoint;  // a directory of checkpoints, or one of them
    std::filesystem::path data_directory = kFashionMnistDirectory;
    std::optional<DataMix> mix;                      // of tokens, instead of the directory
    std::optional<std::filesystem::path> tokenizer;  // if not the one beside the data; or "bytes"
    BadSamples bad_samples = BadSamples::refuse;     // texts
    std::optional<std::filesystem::path> cache;      // "none": there is no cache
    std::optional<TrainTestRest> split;              // of the training, of data without files to test with
    std::optional<Precision> precision;              // nullopt: that of the training
    DeviceChoice device = DeviceChoice::automatic;
    std::vector<std::filesystem::path> tasks;  // of questions for gpt
    std::optional<std::filesystem::path> json;
    bool averaged = false;  // the weights' average instead of them
};

// Of all ranks together.
struct Evaluated {
    std::int64_t samples;                        // of the test
    double loss;                                 // the mean over them
    std::optional<double> accuracy, perplexity;  // as in EpochReport
    std::optional<MaskCounts> masks;             // of models that find pixels
    double seconds;                              // of this rank
};

// One of a mix.
struct EvaluatedSet {
    std::string data;
    double weight;  // a part of 1
    Evaluated tested;
};
// Pure: the expected loss of a sample drawn by the weights.
Evaluated mixed(const std::vector<EvaluatedSet>& sets);

// What evaluates: every rank makes one, with its own device.
class SavedModelEvaluation {
 public:
    // The model that the checkpoint is of, placed and loaded.
    static Result<SavedModelEvaluation> make(const SavedModel& saved, Precision precision, Device& device);

    // The test as a training makes it: each rank takes its part. Every rank calls.
    Result<Evaluated> test(const Dataset& data, Communicator& ranks);

    Model& model() { return *model_; }

 private:
    const ModelInfo& info_;
    Settings settings_;
    Device& device_;
    std::unique_ptr<Model> model_;

    SavedModelEvaluation(const ModelInfo& info, Settings settings, Device& device,
                         std::unique_ptr<Model> model)
        : info_(info), settings_(std::move(settings)), device_(device), model_(std::move(model)) {}
};

struct AnsweredTask {
    LanguageTask task;
    TaskScores scores;
};

// Pure: the line for people, and what the summary has besides the facts of the run. `sets`: of a mix.
std::string evaluation_line(const Evaluated& evaluated);
nlohmann::ordered_json evaluation_json(const RunFacts& facts, const SavedModel& saved,
                                       const Evaluated& evaluated, const std::vector<AnsweredTask>& tasks,
                                       const std::vector<EvaluatedSet>& sets = {});

// Prints both; the latter is also --json's file.
Result<void> evaluate(const EvaluateOptions& options, std::chrono::steady_clock::time_point started);

}  // namespace dp::trainer
