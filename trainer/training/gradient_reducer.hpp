// SPDX-License-Identifier: Apache-2.0
//
// All-reduces gradients while the backward pass still makes others: in buckets, each as soon as its gradients
// are final (Li et al. 2020, "PyTorch Distributed"). train_step.cpp uses it for each step.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

// Bytes per bucket, as in PyTorch: of the first, where the network begins, and of the others.
inline constexpr std::int64_t kFirstBucket = std::int64_t{1} << 20, kBucket = std::int64_t{25} << 20;

// Ranges of the gradients' elements, final once the parameter of that number has its gradient: the backward
// pass goes from the last declared parameter to the first.
struct Bucket {
    std::vector<Shard> pieces;
    std::size_t needs;
};

// Pure: all of the gradients' memory, in the order in which the pieces become final. What is final before a parameter as large
// as a bucket (a table of words, which is final last) is summed without waiting for it.
inline std::vector<Bucket> buckets_of(const ParameterSet& parameters, std::int64_t first_bytes = kFirstBucket,
                                      std::int64_t bytes = kBucket) {
    std::vector<Bucket> buckets;
    const auto& all = parameters.all();
    // Values with weight decay are in declaration order, so their end is final first.
    std::int64_t end = parameters.decayed();
    const Parameter* after = nullptr;  // the one behind
    for (std::size_t number = all.size(); number-- > 0;) {
        const Parameter& parameter = all[number];
        if (parameter.first >= parameters.decayed()) continue;
        const std::int64_t wanted = buckets.empty() ? first_bytes : bytes;
        if (end == parameter.first) continue;  // another rank has it, and those before
        if (parameter.is_final_with_earlier && parameter.first > 0)
            continue;  // the earlier one may be frozen, and elsewhere
        const auto bytes_between = [](std::int64_t first, std::int64_t last) {
            return (last - first) * static_cast<std::int64_t>(sizeof(float));
        };
        if (after != nullptr && bytes_between(parameter.first, after->first) >= bytes &&
            bytes_between(after->first, end) >= first_bytes) {
            buckets.push_back({{{after->first, end - after->first}}, after->number});
            end = after->first;
        }
        after = &parameter;
        if (bytes_between(parameter.first, end) < wanted && parameter.first > 0) continue;
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

class GradientReducer {
 public:
    // All arguments must outlive this; the parameters have been placed. `in_order`: as Communicator::start_adding() does.
    GradientReducer(ParameterSet& parameters, Device& device, Communicator& communicator,
                    std::vector<Bucket> buckets, bool in_order = false)
        : parameters_(parameters),
          device_(device),
          communicator_(communicator),
          buckets_(std::move(buckets)),
          in_order_(in_order),
          next_(buckets_.size()) {
        parameters_.on_completed([this](std::size_t number) { completed(number); });
    }
    ~GradientReducer() { parameters_.on_completed({}); }
    GradientReducer(const GradientReducer&) = delete;
    GradientReducer& operator=(const GradientReducer&) = delete;

    // Call before the backward pass whose gradients are all-reduced. With `sum` (accumulated gradients of
    // earlier batches, in the same layout) they are added to it first, and the sum is all-reduced; in order, `sum`, which is
    // necessary, is the sum over all ranks until now.
    void begin(const Tensor& sum = {}) {
        sum_ = sum;
        next_ = 0;
        started_ = {};
    }
    // After the backward pass: the sum over all ranks of the gradients (or of `sum`).
    Result<Tensor> finish() {
        completed(0);
        const auto finished = communicator_.wait_all_reduces();
        if (!started_) return tl::unexpected(started_.error());
        if (!finished) return tl::unexpected(finished.error());
        return result();
    }

    // What finish() returned, or should have, in the last step whose sums a rank of this node has.
    Tensor result() const {
        return in_order_ ? sum_ : communicator_.result_of(sum_ ? sum_ : parameters_.gradients());
    }

 private:
    ParameterSet& parameters_;
    Device& device_;
    Communicator& communicator_;
    std::vector<Bucket> buckets_;
    bool in_order_;
    Tensor sum_;
    std::size_t next_ = 0;  // bucket
    Result<void> started_;

    void completed(std::size_t number) {
        while (next_ < buckets_.size() && buckets_[next_].needs >= number) start(buckets_[next_++]);
    }
    void start(const Bucket& bucket) {
        if (!started_) return;
        std::vector<Tensor> parts, sums;
        for (const auto& [first, count] : bucket.pieces) {
            parts.push_back(parameters_.gradients().view(first, {count}));
            if (sum_) sums.push_back(sum_.view(first, {count}));
        }
        if (in_order_) {
            started_ = communicator_.start_adding(parts, sums);
            return;
        }
        for (std::size_t i = 0; i < sums.size(); ++i) device_.add(parts[i], sums[i]);
        started_ = communicator_.start_all_reduces(sum_ ? sums : parts);
    }
};

}  // namespace dp::trainer
