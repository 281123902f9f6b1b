// SPDX-License-Identifier: Apache-2.0
//
// A worker thread with a queue: a communicator between CPUs uses it to all-reduce a bucket of gradients
// during the backward pass.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// All methods are called from one thread. The destructor waits for the work in progress and drops the rest.
class Background {
 public:
    using Work = std::function<Result<void>()>;

    // Queues it. It is skipped if earlier work failed.
    void start(Work work);

    // The time so far in which there was work in progress.
    std::int64_t busy_nanoseconds() const { return busy_; }

    // Waits until the queue is empty. Returns the first error since the last call. By this name in its stack
    // --dp-hang-timeout knows that a rank waits for others.
    Result<void> finish();

 private:
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<Work> queue_;  // the first one is in progress
    Result<void> result_;
    std::atomic<std::int64_t> busy_ = 0;
    std::jthread thread_;  // begins with the first work

    void run(const std::stop_token& stop);
};

}  // namespace dp::trainer
