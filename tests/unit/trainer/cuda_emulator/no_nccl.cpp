// SPDX-License-Identifier: Apache-2.0
//
// In the place of nccl_communicator.cpp: the emulated GPU trains alone.
#include "trainer/devices/cuda/nccl_communicator.hpp"

namespace dp::trainer {

Result<std::unique_ptr<Communicator>> make_nccl_communicator(dp_context*, CudaDevice&) {
    return fail(Fault::world, "the emulated GPU has no NCCL");
}

}  // namespace dp::trainer
