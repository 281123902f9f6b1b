// SPDX-License-Identifier: Apache-2.0
//
// Page-locked host memory in which small uploads wait for the GPU. CUDA may read the memory of a program after the call that copies
// from it has returned, where the GPU can access it directly (GH200, HMM), and uploads are often of temporaries.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>

namespace dp::trainer {

// For one stream: what the room has is free once the stream has ended all that was queued, so it is taken from front to back, and the
// owner says when the stream was empty.
class UploadRoom {
 public:
    static constexpr std::size_t kLargest = std::size_t{64}
                                            << 10;  // bytes of a copy; larger ones are waited for
    static constexpr std::size_t kSize = 16 * kLargest;

    UploadRoom() = default;
    ~UploadRoom() {
        if (memory_ != nullptr) cudaFreeHost(memory_);
    }
    UploadRoom(const UploadRoom&) = delete;
    UploadRoom& operator=(const UploadRoom&) = delete;

    cudaError_t make() {
        void* memory = nullptr;
        const cudaError_t result = cudaHostAlloc(&memory, kSize, cudaHostAllocDefault);
        memory_ = static_cast<std::byte*>(memory);
        return result;
    }

    bool has_room_for(std::size_t bytes) const { return bytes <= kSize - used_; }
    void empty() { used_ = 0; }
    // A copy of these bytes, which stays until empty(). There must be room for them.
    const void* copy(const void* from, std::size_t bytes) {
        constexpr std::size_t kAlignment = 64;
        std::byte* place = memory_ + used_;
        std::memcpy(place, from, bytes);
        used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
        return place;
    }

 private:
    std::byte* memory_ = nullptr;
    std::size_t used_ = 0;
};

}  // namespace dp::trainer
