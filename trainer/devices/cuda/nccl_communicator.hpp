// SPDX-License-Identifier: Apache-2.0
//
// The communicator between GPUs. module.cpp opens it.
#ifndef TRAINER_DEVICES_CUDA_NCCL_COMMUNICATOR_HPP
#define TRAINER_DEVICES_CUDA_NCCL_COMMUNICATOR_HPP

#include <memory>

#include "dp/dp.h"
#include "trainer/base/communicator.hpp"
#include "trainer/devices/cuda/cuda_device.hpp"

namespace dp::trainer {

// For all ranks of the context's world, on the device's stream. Both must outlive it.
Result<std::unique_ptr<Communicator>> make_nccl_communicator(dp_context* context, CudaDevice& device);

}  // namespace dp::trainer

#endif
