// SPDX-License-Identifier: Apache-2.0
//
// Shared memory as large as the launch says (CudaDevice::launch_with()). The tests' emulated GPU replaces this file
// (tests/unit/trainer/cuda_emulator).
#pragma once

namespace dp::trainer::kernels {

// At a multiple of 16 bytes.
template <typename T>
__device__ T* launched_memory() {
    extern __shared__ uint4 of_launch[];
    return reinterpret_cast<T*>(of_launch);
}

}  // namespace dp::trainer::kernels
