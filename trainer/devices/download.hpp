// SPDX-License-Identifier: Apache-2.0
//
// Takes numbers from a device while the host does something else, and the device what was queued later. Device::make_download() makes
// one: checkpoints are written with it, and what a step has found is taken with it (train_step.cpp).
#pragma once

#include <cstddef>
#include <span>

#include "trainer/base/tensor.hpp"

namespace dp::trainer {

class Download {
 public:
    virtual ~Download() = default;
    // Queues the copy of a tensor, which work that is queued later may overwrite. Call wait() before the next start().
    virtual void start(const Tensor& from) = 0;
    // The host waits until the copy is there: valid until the next start(). Device::status() says whether it is right.
    virtual std::span<const std::byte> wait() = 0;
};

}  // namespace dp::trainer
