// SPDX-License-Identifier: Apache-2.0
//
// GPU scratch memory for one operation: parts of sums, copies in another type. It grows to the largest
// request, so training soon allocates no more. One stream uses it, so an operation may have it as soon as the
// one before is queued.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "trainer/devices/cuda/check.hpp"

namespace dp::trainer {

class Workspace {
 public:
    // `failure` belongs to the device and outlives this.
    explicit Workspace(FirstFailure& failure) : failure_(failure) {}
    ~Workspace() { cudaFree(memory_); }  // nobody is left to tell about a failure
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    // Room for `count` T, aligned to 256 bytes; discards the content. Null after a failure.
    template <typename T>
    T* take(std::int64_t count) {
        return static_cast<T*>(bytes(static_cast<std::size_t>(count) * sizeof(T)));
    }
    std::size_t size() const { return bytes_; }

 private:
    FirstFailure& failure_;
    void* memory_ = nullptr;
    std::size_t bytes_ = 0;

    void* bytes(std::size_t wanted) {
        if (failure_.failed()) return nullptr;
        if (memory_ != nullptr && wanted <= bytes_) return memory_;
        cudaFree(memory_);  // waits for what uses it
        memory_ = nullptr;
        bytes_ = 0;
        if (!failure_.check(cudaMalloc(&memory_, std::max<std::size_t>(wanted, 1)),
                            "memory for what an operation keeps meanwhile"))
            return nullptr;
        bytes_ = wanted;
        return memory_;
    }
};

}  // namespace dp::trainer
