// SPDX-License-Identifier: Apache-2.0
//
// In the place of nccl_communicator.cpp: the emulated GPU trains alone.
#include "trainer/devices/cuda/cuda_device.hpp"

namespace dp::trainer {

Result<std::unique_ptr<Communicator>> CudaDevice::open_nccl(dp_context*) {
    return fail(Fault::world, "the emulated GPU has no NCCL");
}

}  // namespace dp::trainer
