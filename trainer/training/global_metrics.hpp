// SPDX-License-Identifier: Apache-2.0
//
// What a training asks of all ranks together, apart from the sum of their gradients.
#pragma once

#include <string>

#include "trainer/base/result.hpp"
#include "trainer/training/context.hpp"

namespace dp::trainer {

// Sums over samples; on a device f64 [2].
struct Metrics {
    double loss = 0;
    double correct = 0;
};

void set_metrics(Device& device, const Metrics& metrics, const Tensor& there);
// Waits for the device.
Metrics get_metrics(Device& device, const Tensor& there);

class GlobalMetrics {
 public:
    explicit GlobalMetrics(const TrainingContext& run);
    ~GlobalMetrics();
    GlobalMetrics(const GlobalMetrics&) = delete;  // the model points to it
    GlobalMetrics& operator=(const GlobalMetrics&) = delete;

    // The sums over all ranks, per target of a sample. Every rank calls with its own.
    Result<Metrics> total(const Metrics& here);
    // The first failure among the sums that the model's layers requested since the training began.
    const Result<void>& whole_batches() const { return whole_batches_; }
    // An error that all ranks see alike and stop at; one of them reports it.
    tl::unexpected<Error> fail(std::string message) const;

 private:
    const TrainingContext& run_;
    Tensor sums_;
    Result<void> whole_batches_;

    void add_up(const Tensor& sums);  // for the model's layers
};

}  // namespace dp::trainer
