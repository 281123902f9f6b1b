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

GlobalMetrics::GlobalMetrics(Model& model, Device& device, Communicator& communicator, Observer& observer)
    : model_(model),
      device_(device),
      communicator_(communicator),
      observer_(observer),
      sums_(device.make(Type::f64, {2})) {
    if (communicator.size() == 1 || !model.looks_at_whole_batch()) return;
    model.set_whole_batch({communicator.size(), [this](const Tensor& sums) { add_up(sums); }});
    // The first all-reduce also connects; that time is not part of a step, in which ranks may be far apart.
    add_up(sums_);
}

GlobalMetrics::~GlobalMetrics() {
    model_.set_whole_batch({});
}

Result<Metrics> GlobalMetrics::total(const Metrics& here) {
    set_metrics(device_, here, sums_);
    observer_.on_phase(Phase::communication);
    DP_TRY(communicator_.all_reduce(sums_, Reduction::sum));
    const Metrics all = get_metrics(device_, sums_);
    DP_TRY(device_.status());
    const auto targets = static_cast<double>(model_.targets_per_sample());
    return Metrics{all.loss / targets, all.correct / targets};
}

void GlobalMetrics::add_up(const Tensor& sums) {
    if (!whole_batches_) return;
    observer_.on_phase(Phase::communication);
    whole_batches_ = communicator_.small_all_reduce(sums);
    observer_.on_phase(Phase::compute);
}

tl::unexpected<Error> GlobalMetrics::fail(std::string message) const {
    return dp::trainer::fail(Fault::training, communicator_.rank() == 0 ? std::move(message) : "");
}

}  // namespace dp::trainer
