// SPDX-License-Identifier: Apache-2.0
//
// Opens the device of --device. The CUDA device is in a shared module (libdp-trainer-cuda.so) that only this
// loads, so that the trainer starts on machines without the CUDA libraries.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "dp/dp.hpp"
#include "trainer/base/communicator.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/devices/gpu_share.hpp"
#include "trainer/devices/nccl_group.hpp"
#include "trainer/devices/operation_log.hpp"

namespace dp::trainer {

enum class DeviceChoice { automatic, cpu, cuda };

struct OpenedDevice {
    std::unique_ptr<Device> device;
    std::optional<std::string> note;  // why the CPU was taken where the choice was left to us
};

// `threads` are the CPU's.
// With a log, its operations are logged (profiled.hpp).
Result<OpenedDevice> open_device(DeviceChoice choice, const GpuShare& gpu, int threads,
                                 OperationLog* log = nullptr);

// The CUDA device alone, or why there is none.
Result<std::unique_ptr<Device>> open_cuda(const GpuShare& gpu, OperationLog* log = nullptr);

// NCCL between the ranks of a group, all of which call, for a device that open_cuda made. Both must outlive it. Where a rank has
// several, all ranks open them, and then end them, in the same order.
Result<std::unique_ptr<Communicator>> open_nccl(Context& context, Device& device, const NcclGroup& group);

}  // namespace dp::trainer
