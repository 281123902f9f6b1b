// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/gradient_reducer.hpp"

#include <utility>

namespace dp::trainer {

std::vector<Bucket> buckets_of(const ParameterSet& parameters, std::int64_t first_bytes, std::int64_t bytes) {
    std::vector<Bucket> buckets;
    const auto& all = parameters.all();
    // Values with weight decay are in declaration order, so their end is final first.
    std::int64_t end = parameters.decayed();
    for (std::size_t number = all.size(); number-- > 0;) {
        const Parameter& parameter = all[number];
        if (parameter.first >= parameters.decayed()) continue;
        const std::int64_t wanted = buckets.empty() ? first_bytes : bytes;
        const std::int64_t size = (end - parameter.first) * static_cast<std::int64_t>(sizeof(float));
        if (size < wanted && parameter.first > 0) continue;
        buckets.push_back({{{parameter.first, end - parameter.first}}, number});
        end = parameter.first;
    }
    // The rest, biases and the like, is small and final last: it goes with the last bucket.
    const Shard rest{parameters.decayed(), parameters.gradients().elements() - parameters.decayed()};
    if (rest.count == 0) return buckets;
    if (buckets.empty()) buckets.emplace_back();
    buckets.back().pieces.push_back(rest);
    buckets.back().needs = 0;
    return buckets;
}

GradientReducer::GradientReducer(ParameterSet& parameters, Device& device, Communicator& communicator,
                                 std::vector<Bucket> buckets)
    : parameters_(parameters),
      device_(device),
      communicator_(communicator),
      buckets_(std::move(buckets)),
      next_(buckets_.size()) {
    parameters_.on_completed([this](std::size_t number) { completed(number); });
}

GradientReducer::~GradientReducer() {
    parameters_.on_completed({});
}

void GradientReducer::begin(const Tensor& sum) {
    sum_ = sum;
    next_ = 0;
    started_ = {};
}

void GradientReducer::completed(std::size_t number) {
    while (next_ < buckets_.size() && buckets_[next_].needs >= number) start(buckets_[next_++]);
}

void GradientReducer::start(const Bucket& bucket) {
    if (!started_) return;
    std::vector<Tensor> parts;
    for (const auto& [first, count] : bucket.pieces) {
        parts.push_back(parameters_.gradients().view(first, {count}));
        if (!sum_) continue;
        const Tensor all = sum_.view(first, {count});
        device_.add(parts.back(), all);
        parts.back() = all;
    }
    started_ = communicator_.start_all_reduces(parts);
}

Result<Tensor> GradientReducer::finish() {
    completed(0);
    const auto finished = communicator_.wait_all_reduces();
    if (!started_) return tl::unexpected(started_.error());
    if (!finished) return tl::unexpected(finished.error());
    return communicator_.result_of(sum_ ? sum_ : parameters_.gradients());
}

}  // namespace dp::trainer
