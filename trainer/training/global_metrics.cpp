// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/global_metrics.hpp"

#include <array>
#include <utility>

namespace dp::trainer {

void set_metrics(Device& device, const Metrics& metrics, const Tensor& there) {
    device.upload(std::array{metrics.loss, metrics.correct}.data(), there);
}

Metrics get_metrics(Device& device, const Tensor& there) {
    const auto sums = device.values_of<double>(there);
    return {sums[0], sums[1]};
}

GlobalMetrics::GlobalMetrics(const TrainingContext& run) : run_(run), sums_(run.device.make(Type::f64, {2})) {
    if (run.communicator.size() == 1 || !run.model.looks_at_whole_batch()) return;
    run.model.set_whole_batch({run.communicator.size(), [this](const Tensor& sums) { add_up(sums); }});
    // The first all-reduce also connects; that time is not part of a step, in which ranks may be far apart.
    add_up(sums_);
}

GlobalMetrics::~GlobalMetrics() {
    run_.model.set_whole_batch({});
}

Result<Metrics> GlobalMetrics::total(const Metrics& here) {
    set_metrics(run_.device, here, sums_);
    run_.observer.on_phase(Phase::communication);
    DP_TRY(run_.communicator.all_reduce(sums_, Reduction::sum));
    const Metrics all = get_metrics(run_.device, sums_);
    DP_TRY(run_.device.status());
    const auto targets = static_cast<double>(run_.model.targets_per_sample());
    return Metrics{all.loss / targets, all.correct / targets};
}

void GlobalMetrics::add_up(const Tensor& sums) {
    if (!whole_batches_) return;
    run_.observer.on_phase(Phase::communication);
    whole_batches_ = run_.communicator.small_all_reduce(sums);
    run_.observer.on_phase(Phase::compute);
}

tl::unexpected<Error> GlobalMetrics::fail(std::string message) const {
    return dp::trainer::fail(Fault::training, run_.communicator.rank() == 0 ? std::move(message) : "");
}

}  // namespace dp::trainer
