// SPDX-License-Identifier: Apache-2.0
//
// Samples in the device's memory, from which batches are gathered without touching the host. The training
// loop has them of the training set and of its part of the test set.
#ifndef TRAINER_TRAINING_DEVICE_SAMPLES_HPP
#define TRAINER_TRAINING_DEVICE_SAMPLES_HPP

#include <cstdint>

#include "trainer/data/dataset.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

class DeviceSamples {
 public:
    // The samples [first, first + count), for batches of up to `batch` in which features that are no tokens
    // have this type. The device must outlive it.
    DeviceSamples(Device& device, const Samples& samples, std::int64_t first, std::int64_t count,
                  std::int64_t batch, Type type);

    // The samples that `indices` names. Valid until the next call.
    Batch gather(const Tensor& indices);

 private:
    Device& device_;
    Affine normalise_;
    Tensor features_, targets_;  // all of them, as stored
    Tensor x_, target_;          // one batch

    Tensor upload(const Matrix& matrix, std::int64_t first, Shape shape);
};

}  // namespace dp::trainer

#endif
