// SPDX-License-Identifier: Apache-2.0
//
// How long work takes on a stream, for gemm.cpp's choices.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>

namespace dp::trainer {

// By events. CUDA may refuse to record one: it documents CUDA_ERROR_INVALID_HANDLE where the stream is of another context, and that
// of a GPU's part is (sm_partition.hpp). Then by the host's clock, between two synchronizations: longer by some µs, for all alike.
class StreamTimer {
 public:
    explicit StreamTimer(cudaStream_t stream) : stream_(stream), begin_(event()), end_(event()) {}

    // In milliseconds, if work(), which queues it, returns true and CUDA succeeds. Leaves no error of CUDA's behind.
    template <typename Work>
    std::optional<float> time(Work work) {
        auto result = measure(work);
        if (!result) cudaGetLastError();  // else the next call that asks for it would be blamed
        return result;
    }

 private:
    cudaStream_t stream_;
    std::shared_ptr<CUevent_st> begin_, end_;

    // Null if CUDA has none.
    static std::shared_ptr<CUevent_st> event() {
        cudaEvent_t made = nullptr;
        if (cudaEventCreate(&made) == cudaSuccess) return {made, cudaEventDestroy};
        cudaGetLastError();
        return nullptr;
    }
    bool record(const std::shared_ptr<CUevent_st>& which) {
        if (which != nullptr && cudaEventRecord(which.get(), stream_) == cudaSuccess) return true;
        cudaGetLastError();
        return false;
    }

    template <typename Work>
    std::optional<float> measure(Work work) {
        using Clock = std::chrono::steady_clock;
        float milliseconds = 0;
        if (record(begin_)) {
            if (!work() || !record(end_) || cudaEventSynchronize(end_.get()) != cudaSuccess ||
                cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()) != cudaSuccess)
                return std::nullopt;
            return milliseconds;
        }
        if (cudaStreamSynchronize(stream_) != cudaSuccess) return std::nullopt;
        const auto began = Clock::now();
        if (!work() || cudaStreamSynchronize(stream_) != cudaSuccess) return std::nullopt;
        return std::chrono::duration<float, std::milli>(Clock::now() - began).count();
    }
};

struct Times {
    float one, other;  // milliseconds; infinite where it cannot be done
    bool is_one_faster() const { return one < other; }
};

// Of two ways to the same result, each done some times.
template <typename One, typename Other>
Times times_of(One& one, Other& other, cudaStream_t stream) {
    StreamTimer timer(stream);
    const auto least = [&](auto& work) {
        float best = std::numeric_limits<float>::infinity();
        for (int i = 0; i < 5 && work(); ++i) best = std::min(best, timer.time(work).value_or(best));
        return best;
    };
    const float of_one = least(one);
    return {of_one, least(other)};
}

// Whether `one` can be done, and takes less time than `other` does.
template <typename One, typename Other>
bool is_faster(One& one, Other& other, cudaStream_t stream) {
    return times_of(one, other, stream).is_one_faster();
}

}  // namespace dp::trainer
