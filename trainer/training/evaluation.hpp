// SPDX-License-Identifier: Apache-2.0
//
// Evaluates a model on the test data: each rank takes its part, and the result is that of all together.
#pragma once

#include <cstdint>

#include "trainer/base/partition.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/training/device_samples.hpp"
#include "trainer/training/global_metrics.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

class Evaluation {
 public:
    // The model has been placed, for batches of test_batch_of() samples. All arguments must outlive this.
    Evaluation(Model& model, const Samples& test, const Settings& settings, Device& device,
               Communicator& communicator, Observer& observer);

    // The means over all test samples. Every rank calls.
    Result<Metrics> test(GlobalMetrics& ranks);

 private:
    Model& model_;
    Device& device_;
    Observer& observer_;
    std::int64_t count_;  // samples of all ranks
    Shard shard_;         // of them, this rank's
    std::int64_t batch_;
    DeviceSamples samples_;
    Tensor order_;    // i32, of a shard's samples
    Tensor metrics_;  // f64 [2]
};

}  // namespace dp::trainer
