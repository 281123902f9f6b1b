// SPDX-License-Identifier: Apache-2.0
//
// Runs of other trainers, from the lines that they print: for `trainer report`, which shows them beside ours. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dp::trainer {

// Sees a log line by line. A summary has those keys of ours (report.hpp) that the log tells, and "log": whose lines they are.
//
//   pytorch   the examples': "Train Epoch: 5 [59200/60000 (99%)] Loss: 0.000981", at the end "Training time = 192.25". A line counts
//             its rank's samples, so the rate is of the epochs' whole data set
//   megatron  Megatron-LM: "using world size: 4, ..." and lines with "elapsed time per iteration (ms): 537.3", each about the
//             iterations since the last
//   samba     SambaNova: "inner train loop time : ..." of each instance, which states the rate of all together: the run's is
//             their mean, never their sum. {'e2e_train_time': ...} of their language models
//   script    of a job script: "Model: NAME", and at the end "Duration:  SECONDS" of all of it
class OtherLogs {
 public:
    void see(const std::string& line);
    // At the end of the log, in the order in which the runs ended.
    std::vector<nlohmann::ordered_json> summaries();

 private:
    using Json = nlohmann::ordered_json;

    std::vector<Json> ended_;
    struct {
        double epochs = 0, samples = 0, loss = 0, ranks = 1, nodes = 0;
        std::string device;
    } pytorch_;
    struct {
        double ranks = 0;  // 0: not said
        struct Line {
            double iteration, milliseconds, batch, loss;
        };
        std::vector<Line> lines;
    } megatron_;
    struct Instance {
        double seconds, rate;
        std::optional<std::int64_t> steps;
        double loss;
    };
    std::vector<Instance> instances_, language_;
    std::string script_;  // the model of one that has not ended

    void see_pytorch(const std::string& line);
    void see_megatron(const std::string& line);
    void see_samba(const std::string& line);
    void see_script(const std::string& line);
    void end_megatron();
    void end_samba();
};

}  // namespace dp::trainer
