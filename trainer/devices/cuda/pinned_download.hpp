// SPDX-License-Identifier: Apache-2.0
//
// Downloads to page-locked memory, beside what the host does: CUDA copies to other memory only while the caller waits.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdlib>
#include <span>

#include "trainer/devices/cuda/cuda_device.hpp"
#include "trainer/devices/download.hpp"

namespace dp::trainer {

class PinnedDownload final : public Download {
 public:
    // Where the host cannot lock that much memory (RLIMIT_MEMLOCK, a container), takes other memory, which is slower.
    PinnedDownload(CudaDevice& device, std::size_t bytes) : device_(device) {
        is_pinned_ = cudaHostAlloc(&memory_, bytes, cudaHostAllocDefault) == cudaSuccess;
        if (!is_pinned_) {
            cudaGetLastError();  // else the next call that asks for it would be blamed
            memory_ = std::malloc(bytes);
        }
        if (cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming) != cudaSuccess) forget_event();
    }
    // Whoever has not waited may end while the copy is on its way.
    ~PinnedDownload() override {
        wait();
        if (copied_ != nullptr) cudaEventDestroy(copied_);
        if (is_pinned_)
            cudaFreeHost(memory_);
        else
            std::free(memory_);
    }
    PinnedDownload(const PinnedDownload&) = delete;
    PinnedDownload& operator=(const PinnedDownload&) = delete;

    void start(const Tensor& from) override {
        bytes_ = from.bytes();
        if (device_.failed() || bytes_ == 0) return;
        if (memory_ == nullptr)
            return device_.keep_failure(
                "no host memory for copies from the GPU; give the job more memory (--mem)");
        is_under_way_ = device_.check(
            cudaMemcpyAsync(memory_, from.data<void>(), bytes_, cudaMemcpyDeviceToHost, device_.stream()),
            "copying from the GPU");
        // CUDA may refuse the stream of a GPU's part, as stream_timer.hpp says.
        if (copied_ != nullptr && cudaEventRecord(copied_, device_.stream()) != cudaSuccess) forget_event();
    }

    std::span<const std::byte> wait() override {
        device_.step().flush();  // so that the GPU is not idle meanwhile
        if (is_under_way_ && copied_ != nullptr)
            device_.check(cudaEventSynchronize(copied_), "waiting for a copy from the GPU");
        else if (is_under_way_)
            device_.synchronize();
        is_under_way_ = false;
        if (memory_ == nullptr || device_.failed()) return {};
        return {static_cast<const std::byte*>(memory_), bytes_};
    }

 private:
    CudaDevice& device_;
    void* memory_ = nullptr;
    bool is_pinned_ = false, is_under_way_ = false;
    cudaEvent_t copied_ = nullptr;  // null: the host waits for all that is queued
    std::size_t bytes_ = 0;

    void forget_event() {
        cudaGetLastError();
        if (copied_ != nullptr) cudaEventDestroy(copied_);
        copied_ = nullptr;
    }
};

}  // namespace dp::trainer
