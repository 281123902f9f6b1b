// SPDX-License-Identifier: Apache-2.0
//
// A worker thread with a queue: a communicator between CPUs uses it to all-reduce a bucket of gradients
// during the backward pass.
#pragma once

#include <atomic>
#include <chrono>
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
    void start(Work work) {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(work));
        changed_.notify_all();
        if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    }

    // The time so far in which there was work in progress.
    std::int64_t busy_nanoseconds() const { return busy_; }

    // Waits until the queue is empty. Returns the first error since the last call.
    Result<void> finish() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return queue_.empty(); });
        return std::exchange(result_, {});
    }

 private:
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<Work> queue_;  // the first one is in progress
    Result<void> result_;
    std::atomic<std::int64_t> busy_ = 0;
    std::jthread thread_;  // begins with the first work

    void run(const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        while (changed_.wait(lock, stop, [this] { return !queue_.empty(); }) && !stop.stop_requested()) {
            if (result_) {
                const Work& work = queue_.front();
                lock.unlock();
                const auto begun = std::chrono::steady_clock::now();
                auto done = work();
                busy_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun).count();
                lock.lock();
                if (!done) result_ = std::move(done);
            }
            queue_.pop_front();
            changed_.notify_all();
        }
    }
};

}  // namespace dp::trainer
