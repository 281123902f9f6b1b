// SPDX-License-Identifier: Apache-2.0
//
// The interface between the trainer and its CUDA module: one exported C symbol that returns these functions.
// Both sides are built together; the version guards against a module left over from another build.
#pragma once

#include <memory>
#include <string>

#include "dp/dp.h"
#include "trainer/base/communicator.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/devices/gpu_share.hpp"
#include "trainer/devices/nccl_group.hpp"
#include "trainer/devices/operation_log.hpp"

namespace dp::trainer {

struct CudaModule {
    int version;
    Result<std::unique_ptr<Device>> (*open)(const GpuShare& gpu, OperationLog* log);
    Result<std::unique_ptr<Communicator>> (*open_nccl)(dp_context* context, Device& device,
                                                       const NcclGroup& group);
    std::string (*place)(const Device& device);
};

// Increase it with every change of CudaModule, NcclGroup, Device, Communicator, Tensor, OperationLog or Error.
inline constexpr int kCudaModuleVersion = 25;
inline constexpr const char* kCudaModuleFile = "libdp-trainer-cuda.so";
inline constexpr const char* kCudaModuleSymbol = "dp_trainer_cuda_module";

}  // namespace dp::trainer
