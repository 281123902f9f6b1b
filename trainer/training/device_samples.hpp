// SPDX-License-Identifier: Apache-2.0
//
// Samples in device memory, from which batches are gathered without the host. The training loop has two: the
// training set and this rank's part of the test set.
#pragma once

#include <cstdint>

#include "trainer/data/dataset.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

class DeviceSamples {
 public:
    // The samples [first, first + count), for batches of up to `batch`. Features other than tokens get this
    // type in a batch. The device must outlive it.
    DeviceSamples(Device& device, const Split& samples, std::int64_t first, std::int64_t count,
                  std::int64_t batch, Type type)
        : device_(device), normalise_(samples.normalise) {
        const Matrix &features = samples.features, &targets = samples.targets;
        if (samples.next_is_target) {
            const Tensor numbers = upload(features, first * features.columns, {count * features.columns + 1});
            features_ = numbers.view(0, {count, features.columns});
            targets_ = numbers.view(1, {count, targets.columns});
        } else {
            features_ = upload(features, first * features.columns, {count, features.columns});
            targets_ = upload(targets, first * targets.columns, {count, targets.columns});
        }
        x_ = device.make(gathered_type(features.type, type), {batch, features.columns});
        target_ = device.make(gathered_type(targets.type), {batch, targets.columns});
    }

    // Gathers the samples that `indices` names. Valid until the next call.
    Batch gather(const Tensor& indices) {
        const Batch batch{x_.first_rows(indices.rows()), target_.first_rows(indices.rows()), {}};
        device_.gather(features_, indices, normalise_, batch.x);
        device_.gather(targets_, indices, {}, batch.target);
        return batch;
    }

 private:
    Device& device_;
    Affine normalise_;
    Tensor features_, targets_;  // all of them, as stored
    Tensor x_, target_;          // one batch

    // Uploads the matrix from element `first` on.
    Tensor upload(const Matrix& matrix, std::int64_t first, Shape shape) {
        Tensor tensor = device_.make(matrix.type, std::move(shape));
        device_.upload(matrix.bytes.data() + static_cast<std::size_t>(first) * size_of(matrix.type), tensor);
        return tensor;
    }
};

}  // namespace dp::trainer
