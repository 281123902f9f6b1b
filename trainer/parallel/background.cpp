// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/background.hpp"

#include <chrono>
#include <utility>

namespace dp::trainer {

void Background::start(Work work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
    if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

[[gnu::noinline]] Result<void> Background::finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty(); });
    return std::exchange(result_, {});
}

void Background::run(const std::stop_token& stop) {
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

}  // namespace dp::trainer
