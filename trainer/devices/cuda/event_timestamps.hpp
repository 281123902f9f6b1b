// SPDX-License-Identifier: Apache-2.0
//
// Timestamps by CUDA's events; where CUDA refuses to record them (stream_timer.hpp says when), by the host's clock, which has to wait.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <optional>
#include <vector>

#include "trainer/devices/cuda/cuda_device.hpp"
#include "trainer/devices/timestamps.hpp"

namespace dp::trainer {

class EventTimestamps final : public Timestamps {
 public:
    explicit EventTimestamps(CudaDevice& device) : device_(device) {}
    ~EventTimestamps() override {
        for (cudaEvent_t one : events_) cudaEventDestroy(one);
    }
    EventTimestamps(const EventTimestamps&) = delete;
    EventTimestamps& operator=(const EventTimestamps&) = delete;

    void take() override {
        if (moments_.empty() && record()) return;
        // Not some by one clock and some by the other: if CUDA refuses any, it is the first one.
        if (!events_.empty())
            return device_.keep_failure(
                "CUDA took the first timestamps of steps, and refuses another one: run it again, and look "
                "for Xid errors in dmesg");
        device_.synchronize();
        moments_.push_back(Clock::now());
    }

    std::vector<double> between() override {
        std::vector<double> seconds;
        for (std::size_t i = 1; i < moments_.size(); ++i)
            seconds.push_back(std::chrono::duration<double>(moments_[i] - moments_[i - 1]).count());
        if (!moments_.empty()) return seconds;
        device_.synchronize();
        for (std::size_t i = 1; i < events_.size() && !device_.failed(); ++i) {
            float milliseconds = 0;
            device_.check(cudaEventElapsedTime(&milliseconds, events_[i - 1], events_[i]), "timing steps");
            seconds.push_back(static_cast<double>(milliseconds) / 1e3);
        }
        return seconds;
    }

 private:
    using Clock = std::chrono::steady_clock;

    CudaDevice& device_;
    std::vector<cudaEvent_t> events_;
    std::vector<Clock::time_point> moments_;  // if there are no events

    bool record() {
        cudaEvent_t event = nullptr;
        if (cudaEventCreate(&event) == cudaSuccess &&
            cudaEventRecord(event, device_.stream()) == cudaSuccess) {
            events_.push_back(event);
            return true;
        }
        cudaGetLastError();  // else the next call that asks for it would be blamed
        if (event != nullptr) cudaEventDestroy(event);
        return false;
    }
};

}  // namespace dp::trainer
