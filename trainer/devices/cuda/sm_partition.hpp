// SPDX-License-Identifier: Apache-2.0
//
// A part of a GPU's streaming multiprocessors, for a rank whose tiles are not all of the GPU: a green context
// and a stream whose kernels run on them alone. CUDA Driver API, "Green Contexts".
//
// What keeps two processes on a GPU from taking turns is MPS, with and without green contexts; what a green
// context adds is that neither spreads over the other's part while both run.
#ifndef TRAINER_DEVICES_CUDA_SM_PARTITION_HPP
#define TRAINER_DEVICES_CUDA_SM_PARTITION_HPP

#include <cuda.h>
#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "trainer/devices/gpu_share.hpp"

namespace dp::trainer {

class SmPartition {
 public:
    // The share's part of the GPU `index`, which must be the current device. Else why there is none; the
    // whole GPU can be used then.
    static tl::expected<std::unique_ptr<SmPartition>, std::string> make(int index, const GpuShare& share);
    ~SmPartition();
    SmPartition(const SmPartition&) = delete;
    SmPartition& operator=(const SmPartition&) = delete;

    cudaStream_t stream() const { return stream_; }  // non-blocking; belongs to this
    // "32 of 132 SMs, beside other processes (MPS)"
    std::string description() const;
    int sms() const { return static_cast<int>(sms_); }

 private:
    CUgreenCtx context_ = nullptr;
    CUstream stream_ = nullptr;
    unsigned sms_ = 0;
    unsigned all_sms_ = 0;
    bool mps_ = false;

    SmPartition() = default;
};

}  // namespace dp::trainer

#endif
