// SPDX-License-Identifier: Apache-2.0
//
// The exported symbol of libdp-trainer-cuda.so: see module.hpp.
#include "trainer/devices/cuda/module.hpp"

#include "trainer/devices/cuda/cuda_device.hpp"

extern "C" __attribute__((visibility("default"))) const dp::trainer::CudaModule* dp_trainer_cuda_module() {
    using namespace dp::trainer;
    static const CudaModule module{
        kCudaModuleVersion, CudaDevice::open,
        // The device was made by open(): the trainer asks for NCCL only if its device is "cuda".
        [](dp_context* context, Device& device, const NcclGroup& group) {
            return static_cast<CudaDevice&>(device).open_nccl(context, group);
        },
        [](const Device& device) { return static_cast<const CudaDevice&>(device).place(); }};
    return &module;
}
