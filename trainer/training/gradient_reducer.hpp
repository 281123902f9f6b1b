// SPDX-License-Identifier: Apache-2.0
//
// All-reduces gradients while the backward pass still makes others: in buckets, each as soon as its gradients
// are final (Li et al. 2020, "PyTorch Distributed"). train_step.cpp uses it for each step.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/base/partition.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"
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

// Pure: all of the gradients' memory, in the order in which the pieces become final.
std::vector<Bucket> buckets_of(const ParameterSet& parameters, std::int64_t first_bytes = kFirstBucket,
                               std::int64_t bytes = kBucket);

class GradientReducer {
 public:
    // All arguments must outlive this; the parameters have been placed.
    GradientReducer(ParameterSet& parameters, Device& device, Communicator& communicator,
                    std::vector<Bucket> buckets);
    ~GradientReducer();
    GradientReducer(const GradientReducer&) = delete;
    GradientReducer& operator=(const GradientReducer&) = delete;

    // Call before the backward pass whose gradients are all-reduced. With `sum` (accumulated gradients of
    // earlier batches, in the same layout) they are added to it first, and the sum is all-reduced.
    void begin(const Tensor& sum = {});
    // After the backward pass: the sum over all ranks of the gradients (or of `sum`).
    Result<Tensor> finish();

 private:
    ParameterSet& parameters_;
    Device& device_;
    Communicator& communicator_;
    std::vector<Bucket> buckets_;
    Tensor sum_;
    std::size_t next_ = 0;  // bucket
    Result<void> started_;

    void completed(std::size_t number);
    void start(const Bucket& bucket);
};

}  // namespace dp::trainer
