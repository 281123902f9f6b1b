// SPDX-License-Identifier: Apache-2.0
//
// A thread that does one thing after another, while the one that gave them to it goes on: how a communicator
// between CPUs reduces a bucket of gradients during the backward pass.
#ifndef TRAINER_PARALLEL_BACKGROUND_HPP
#define TRAINER_PARALLEL_BACKGROUND_HPP

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// Called from one thread.
class Background {
 public:
    using Work = std::function<Result<void>()>;

    Background() = default;
    ~Background();
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

    // Does it after all that was given before; not at all where something of that failed.
    void start(Work work);
    // Waits until nothing is left to do. The first error since the last call.
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

#endif
