// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the emulated GPU launch kernels with.
#pragma once

#include <gtest/gtest.h>

#include <vector>

namespace dp::cuda_emulator {

template <typename Kernel, typename... Arguments>
cudaError_t launch(Kernel kernel, dim3 blocks, dim3 threads, Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Memory of the GPU, which the host can read here.
template <typename T>
class Memory {
 public:
    explicit Memory(std::size_t count) : count_(count) {
        void* place = nullptr;
        if (cudaMalloc(&place, count * sizeof(T)) == cudaSuccess) first_ = static_cast<T*>(place);
    }
    ~Memory() { cudaFree(first_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    T* first() const { return first_; }
    std::vector<T> values() const { return {first_, first_ + count_}; }

 private:
    std::size_t count_;
    T* first_ = nullptr;
};

}  // namespace dp::cuda_emulator
