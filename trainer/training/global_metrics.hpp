// SPDX-License-Identifier: Apache-2.0
//
// What a training asks of all ranks together, apart from the sum of their gradients.
#pragma once

#include <array>
#include <string>

#include "trainer/training/context.hpp"

namespace dp::trainer {

// Sums over samples; on a device f64 [2].
struct Metrics {
    double loss = 0;
    double correct = 0;
};

inline void set_metrics(Device& device, const Metrics& metrics, const Tensor& there) {
    device.upload(std::array{metrics.loss, metrics.correct}.data(), there);
}
// Waits for the device.
inline Metrics get_metrics(Device& device, const Tensor& there) {
    const auto sums = device.values_of<double>(there);
    return {sums[0], sums[1]};
}

class GlobalMetrics {
 public:
    explicit GlobalMetrics(const TrainingContext& run) : run_(run), sums_(run.device.make(Type::f64, {2})) {
        if (run.communicator.size() == 1 || !run.model.looks_at_whole_batch()) return;
        run.model.set_whole_batch({run.communicator.size(), [this](const Tensor& sums) { add_up(sums); }});
        // The first all-reduce also connects: not in a step, in which ranks may be far apart.
        add_up(sums_);
    }
    ~GlobalMetrics() { run_.model.set_whole_batch({}); }
    GlobalMetrics(const GlobalMetrics&) = delete;  // the model points to it
    GlobalMetrics& operator=(const GlobalMetrics&) = delete;

    // The sums over all ranks, per target of a sample. Every rank calls with its own.
    Result<Metrics> total(const Metrics& here) {
        set_metrics(run_.device, here, sums_);
        run_.observer.on_phase(Phase::communication);
        DP_TRY(run_.communicator.all_reduce(sums_, Reduction::sum));
        DP_TRY(run_.communicator.confirm());
        const Metrics all = get_metrics(run_.device, sums_);
        DP_TRY(run_.device.status());
        const auto targets = static_cast<double>(run_.model.targets_per_sample());
        return Metrics{all.loss / targets, all.correct / targets};
    }
    // The first failure among the sums that the model's layers requested since the training began.
    const Result<void>& whole_batches() const { return whole_batches_; }
    // An error that all ranks see alike and stop at; one of them reports it.
    tl::unexpected<Error> fail(std::string message) const {
        return dp::trainer::fail(Fault::training, run_.communicator.rank() == 0 ? std::move(message) : "");
    }

 private:
    const TrainingContext& run_;
    Tensor sums_;
    Result<void> whole_batches_;

    // For the model's layers.
    void add_up(const Tensor& sums) {
        if (!whole_batches_) return;
        run_.observer.on_phase(Phase::communication);
        whole_batches_ = run_.communicator.small_all_reduce(sums);
        run_.observer.on_phase(Phase::compute);
    }
};

}  // namespace dp::trainer
