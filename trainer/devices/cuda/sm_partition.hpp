// SPDX-License-Identifier: Apache-2.0
//
// A part of a GPU's streaming multiprocessors, for a rank that has only some of the GPU's tiles: a green
// context, and a stream whose kernels run only there (CUDA Driver API, "Green Contexts"). MPS lets processes
// use a GPU at the same time; a green context keeps each from spreading over the others' parts. CUDA has them since 12.4,
// which is the oldest that this is compiled with.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "base/failure.hpp"
#include "trainer/devices/gpu_share.hpp"

namespace dp::trainer {

class SmPartition {
 public:
    // The share's part of GPU `index`, which must be the current device; else the reason why there is none.
    // Then the whole GPU can be used.
    static Try<std::unique_ptr<SmPartition>> make(int index, const GpuShare& share);
    ~SmPartition();
    SmPartition(const SmPartition&) = delete;
    SmPartition& operator=(const SmPartition&) = delete;

    cudaStream_t stream() const { return stream_; }  // non-blocking; belongs to this
    // "32 of 132 SMs, beside other processes (MPS)"
    std::string description() const;
    int sms() const { return static_cast<int>(sms_); }

 private:
    [[maybe_unused]] CUgreenCtx context_ = nullptr;  // there is none with CUDA 12 (sm_partition.cpp)
    CUstream stream_ = nullptr;
    unsigned sms_ = 0;
    unsigned all_sms_ = 0;
    bool mps_ = false;

    SmPartition() = default;
};

}  // namespace dp::trainer
