// SPDX-License-Identifier: Apache-2.0
//
// What a training asks of all ranks together, apart from the sum of their gradients.
#pragma once

#include <array>
#include <chrono>
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
        if (run.ranks.tensor.size() > 1)
            run.model.set_tensor_ranks(
                {[this](const Tensor& tensor) { start_tensor_sum(tensor); }, [this] { wait_tensor_sums(); },
                 [this](const Tensor& tensor) {
                     communicate([&] { return run_.ranks.tensor.all_gather(tensor); });
                 },
                 [this](const Tensor& tensor) {
                     communicate([&] { return run_.ranks.tensor.reduce_scatter(tensor); });
                 }});
        if (run.ranks.pipeline.size() > 1) run.model.set_neighbours(neighbours());
        if (run.ranks.data.size() == 1 || !run.model.looks_at_whole_batch()) return;
        run.model.set_whole_batch({run.ranks.data.size(), [this](const Tensor& sums) { add_up(sums); }});
        // The first all-reduce also connects: not in a step, in which ranks may be far apart.
        add_up(sums_);
    }
    ~GlobalMetrics() {
        run_.model.set_whole_batch({});
        run_.model.set_tensor_ranks({});
        run_.model.set_neighbours({});
    }
    GlobalMetrics(const GlobalMetrics&) = delete;  // the model points to it
    GlobalMetrics& operator=(const GlobalMetrics&) = delete;

    // The sums over all samples, per target of a sample. Every rank calls with its own: those of the same samples count once.
    Result<Metrics> total(const Metrics& here) {
        set_metrics(run_.device, run_.ranks.counts() ? here : Metrics{}, sums_);
        run_.observer.on_phase(Phase::communication);
        DP_TRY(run_.ranks.world.all_reduce(sums_, Reduction::sum));
        DP_TRY(run_.ranks.world.confirm());
        const Metrics all = get_metrics(run_.device, sums_);
        DP_TRY(run_.device.status());
        const auto targets = static_cast<double>(run_.model.targets_per_sample());
        return Metrics{all.loss / targets, all.correct / targets};
    }
    // The first failure among the sums and messages that the model's layers requested since the training began.
    const Result<void>& model_sums() const { return model_sums_; }
    // How long this rank has waited for its neighbours in the pipeline until now.
    double seconds_waited() const { return waited_; }
    // An error that all ranks see alike and stop at; one of them reports it.
    tl::unexpected<Error> fail(std::string message) const {
        return dp::trainer::fail(Fault::training, run_.ranks.world.rank() == 0 ? std::move(message) : "");
    }

 private:
    const TrainingContext& run_;
    Tensor sums_;
    Result<void> model_sums_;
    double waited_ = 0;  // seconds

    // For the model's layers.
    void add_up(const Tensor& sums) {
        communicate([&] { return run_.ranks.data.small_all_reduce(sums); });
    }
    // A GPU sums beside what it does meanwhile. On CPUs a thread that summed would take its time from the one that computes.
    void start_tensor_sum(const Tensor& tensor) {
        Communicator& ranks = run_.ranks.tensor;
        communicate([&] {
            return sums_beside() ? ranks.start_all_reduce(tensor) : ranks.all_reduce(tensor, Reduction::sum);
        });
    }
    void wait_tensor_sums() {
        if (sums_beside()) communicate([&] { return run_.ranks.tensor.wait_all_reduces(); });
    }
    bool sums_beside() const { return run_.device.name() == "cuda"; }
    StageNeighbours neighbours() {
        Communicator& stages = run_.ranks.pipeline;
        using Side = StageNeighbours::Side;
        const auto rank_of = [&stages](Side side) {
            return (stages.rank() + (side == Side::before ? stages.size() - 1 : 1)) % stages.size();
        };
        return {[this, &stages, rank_of](const Tensor& tensor, Side to) {
                    const Lane lane = to == Side::after ? Lane::activations : Lane::gradients;
                    wait([&] { return stages.start_send(tensor, rank_of(to), lane); });
                },
                [this, &stages](const Tensor& tensor) { wait([&] { return stages.wait_send(tensor); }); },
                [this, &stages, rank_of](const Tensor& tensor, Side from) {
                    const Lane lane = from == Side::before ? Lane::activations : Lane::gradients;
                    wait([&] { return stages.receive(tensor, rank_of(from), lane); });
                }};
    }
    template <typename Call>
    void wait(const Call& call) {
        using Clock = std::chrono::steady_clock;
        const auto start = Clock::now();
        communicate(call);
        waited_ += std::chrono::duration<double>(Clock::now() - start).count();
    }
    template <typename Call>
    void communicate(const Call& call) {
        if (!model_sums_) return;
        run_.observer.on_phase(Phase::communication);
        model_sums_ = call();
        run_.observer.on_phase(Phase::compute);
    }
};

}  // namespace dp::trainer
