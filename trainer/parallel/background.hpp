// SPDX-License-Identifier: Apache-2.0
//
// A worker thread with a queue: a communicator between CPUs uses it to all-reduce a bucket of gradients
// during the backward pass.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// All methods are called from one thread.
class Background {
 public:
    using Work = std::function<Result<void>()>;

    Background() = default;
    ~Background();
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

    // Queues it. It is skipped if earlier work failed.
    void start(Work work);
    // Waits until the queue is empty. Returns the first error since the last call.
    Result<void> finish();

 private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Work> waiting_;
    bool is_working_ = false, ends_ = false;
    Result<void> result_;
    std::thread thread_;  // begins with the first work

    void run();
};

}  // namespace dp::trainer
