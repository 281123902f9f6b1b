// SPDX-License-Identifier: Apache-2.0
//
// The communicator between GPUs. module.cpp opens it.
#pragma once

#include <memory>

#include "dp/dp.h"
#include "trainer/base/communicator.hpp"
#include "trainer/devices/cuda/cuda_device.hpp"

namespace dp::trainer {

// For all ranks of the context's world, on the device's stream. Both must outlive it.
Result<std::unique_ptr<Communicator>> make_nccl_communicator(dp_context* context, CudaDevice& device);

}  // namespace dp::trainer
