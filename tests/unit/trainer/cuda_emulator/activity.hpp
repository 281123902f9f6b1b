// SPDX-License-Identifier: Apache-2.0
//
// What the emulated GPU did when, for its CUPTI (activity.cpp).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dp::cuda_emulator {

enum class Did { kernel, copy, clear };

// Made by the call that queues it.
class Activity {
 public:
    Activity(Did what, cudaStream_t stream);
    void begin();
    void end();

 private:
    Did what_;
    std::uint64_t stream_;
    bool is_noted_;
    std::uint64_t called_ = 0, begun_ = 0;
};

// Waits for what the stream has queued; what is done while it lives, is done on the stream.
class Doing {
 public:
    Doing(Did what, cudaStream_t stream);
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;
    ~Doing() { activity_.end(); }

 private:
    Activity activity_;
};

}  // namespace dp::cuda_emulator
