// SPDX-License-Identifier: Apache-2.0
//
// Samples in device memory, from which batches are gathered without the host. The training loop has two: the
// training set and this rank's part of the test set.
#pragma once

#include <cstdint>

#include "trainer/data/dataset.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

class DeviceSamples {
 public:
    // The samples [first, first + count), for batches of up to `batch`. Features other than tokens get this
    // type in a batch. The device must outlive it.
    DeviceSamples(Device& device, const Split& samples, std::int64_t first, std::int64_t count,
                  std::int64_t batch, Type type);

    // Gathers the samples that `indices` names. Valid until the next call.
    Batch gather(const Tensor& indices);

 private:
    Device& device_;
    Affine normalise_;
    Tensor features_, targets_;  // all of them, as stored
    Tensor x_, target_;          // one batch

    Tensor upload(const Matrix& matrix, std::int64_t first, Shape shape);
};

}  // namespace dp::trainer
