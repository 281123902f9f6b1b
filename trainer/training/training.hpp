// SPDX-License-Identifier: Apache-2.0
//
// The training loop, in one place: sample, forward and backward, average the gradients, step. run.cpp calls
// it with real devices and ranks, the tests with threads for ranks.
#ifndef TRAINER_TRAINING_TRAINING_HPP
#define TRAINER_TRAINING_TRAINING_HPP

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/plan.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/model.hpp"
#include "trainer/parallel/communicator.hpp"
#include "trainer/precision.hpp"
#include "trainer/result.hpp"
#include "trainer/training/learning_rate.hpp"
#include "trainer/training/optimizer.hpp"
#include "trainer/training/step_log.hpp"

namespace dp::trainer {

struct Settings {
    std::int64_t epochs = 1;
    std::int64_t batch = 1;  // a rank's
    RatePlan rate;
    double weight_decay = 0;
    OptimizerConstants constants;
    bool shard_optimizer = false;  // its state is shared out among the ranks (optimizer.hpp)
    std::int64_t accumulate = 1;   // batches of a rank that make a step, whose gradients are added up
    std::optional<double> clip;    // the largest norm of all gradients together; larger ones are scaled down
    bool skip_bad_steps = false;   // those whose gradients are no numbers; so is it with `clip`
    Optimization optimizer = Optimization::adam;
    Precision precision = Precision::fp32;
    std::uint64_t seed = 1;
    std::optional<std::int64_t> max_steps;  // stop after so many optimizer steps
    // A LogReport for each so many steps; 0: none. `log_single`: not for the last of them and about all, but
    // for the first of an epoch and each `log_every`-th after it, about that step alone.
    std::int64_t log_every = 0;
    bool log_single = false;
    CheckpointPlan checkpoints;
};

// How many steps that makes.
struct Schedule {
    std::int64_t steps_per_epoch;
    std::int64_t total_steps;
    std::int64_t epochs;        // the last may be cut short by max_steps
    std::int64_t global_batch;  // batch * accumulate * world
};

// Pure. An error where a global batch is larger than the data set, because then no step would ever be made,
// and where the learning rate would end above its largest.
Result<Schedule> make_schedule(const Settings& settings, std::int64_t samples, std::int64_t world);

// Pure: samples that a rank tests at a time, of a model with so many activations a sample.
std::int64_t test_batch_of(std::int64_t activations_per_sample, std::int64_t batch);

struct EpochReport {
    std::int64_t epoch;                   // the first is 1
    double loss;                          // mean over the epoch's training samples of all ranks
    double test_loss;                     // mean over the test set, after the epoch
    std::optional<double> test_accuracy;  // 0..1, of models that classify
    double seconds;                       // of training, without the test
    double samples_per_second;            // of all ranks together
    std::int64_t skipped = 0;             // steps whose gradients were no numbers; not in `loss`
};

// How steps went, all ranks together.
struct LogReport {
    StepPlace place;  // of the last of them
    double loss;      // mean over the samples
    double seconds_per_step;
    double rate;           // learning rate of the last one
    double gradient_norm;  // of the last one, before it was clipped
    std::int64_t skipped;  // of the steps
};

// From where a training goes on.
struct ResumeReport {
    std::int64_t step;  // is made
    std::filesystem::path path;
    std::string precision, saved_precision;  // from now on, and until then
};

struct CheckpointReport {
    std::int64_t step;  // of the training
    std::filesystem::path path;
    double seconds;
    // Why it could not be written; "" on the ranks that did their part. The training goes on.
    std::optional<std::string> problem;
};

// What this rank does, as the host sees it: work that a GPU has been given counts where the host waits for
// it.
enum class Phase { idle, compute, load, communication, checkpoint };

// Is told how the training goes; its methods return at once.
class Observer {
 public:
    virtual ~Observer() = default;
    virtual void on_phase(Phase) {}                                                             // from now on
    virtual void on_step(std::int64_t epoch, std::int64_t step, const Schedule& schedule) = 0;  // from 1
    virtual void on_log(const LogReport& /*report*/, const Schedule& /*schedule*/) {}
    virtual void on_epoch(const EpochReport& report, const Schedule& schedule) = 0;
    virtual void on_resume(const ResumeReport& /*report*/, const Schedule& /*schedule*/) {}
    virtual void on_checkpoint(const CheckpointReport& /*report*/) {}
};

struct Outcome {
    Schedule schedule;
    EpochReport last;
    double train_seconds;       // all epochs, without the tests; of the slowest rank
    double samples_per_second;  // of all ranks together
    std::int64_t skipped = 0;   // steps
    // Steps that had been made when it went on from a checkpoint; no part of seconds and samples per second.
    std::int64_t resumed = 0;
    std::int64_t checkpoints = 0;  // written
    bool end_is_saved = true;      // false: the last of them could not be written
    std::vector<float> parameters;
    std::uint64_t parameters_hash;
    bool equal_on_all_ranks;  // every rank's hash is the same
};

// Trains `model`, which is not placed yet. Every rank of the communicator calls it with the same settings and
// data.
Result<Outcome> train(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                      Device& device, Communicator& communicator, Observer& observer);

// Makes a step on one and the same batch, again and again, as training would: for measuring. The observer
// hears of each step. Every rank calls.
Result<void> repeat_step(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                         Device& device, Communicator& communicator, std::int64_t steps, Observer& observer);

// The largest number that a rank brought. Every rank calls.
Result<double> largest_of_all_ranks(double number, Device& device, Communicator& communicator);

// Whether every rank brought the same number. Every rank calls.
Result<bool> equal_on_all_ranks(std::uint64_t number, Device& device, Communicator& communicator);

}  // namespace dp::trainer

#endif
