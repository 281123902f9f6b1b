// SPDX-License-Identifier: Apache-2.0
//
// What a training asks of all its ranks together, beside the sum of their gradients.
#ifndef TRAINER_TRAINING_ALL_RANKS_HPP
#define TRAINER_TRAINING_ALL_RANKS_HPP

#include <string>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/model.hpp"
#include "trainer/training/observer.hpp"

namespace dp::trainer {

// Sums over samples; on a device f64 [2].
struct Metrics {
    double loss = 0;
    double correct = 0;
};

void set_metrics(Device& device, const Metrics& metrics, const Tensor& there);
// Waits for the device.
Metrics get_metrics(Device& device, const Tensor& there);

class AllRanks {
 public:
    // Of a model that is placed. All must outlive this.
    AllRanks(Model& model, Device& device, Communicator& communicator, Observer& observer);
    ~AllRanks();
    AllRanks(const AllRanks&) = delete;  // the model points to it
    AllRanks& operator=(const AllRanks&) = delete;

    // The sums of all ranks, a target. Every rank calls with its own.
    Result<Metrics> total(const Metrics& here);
    // Whether all sums that the model's layers have asked for since the training began were made.
    const Result<void>& whole_batches() const { return whole_batches_; }
    // What all see in the same numbers, and stop at: one of them says it.
    tl::unexpected<Error> fail(std::string message) const;

 private:
    Model& model_;
    Device& device_;
    Communicator& communicator_;
    Observer& observer_;
    Tensor sums_;
    Result<void> whole_batches_;

    void add_up(const Tensor& sums);  // for the model's layers
};

}  // namespace dp::trainer

#endif
