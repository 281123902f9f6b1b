// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/background.hpp"

#include <utility>

namespace dp::trainer {

Background::~Background() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
        waiting_.clear();
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void Background::start(Work work) {
    {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(work));
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    changed_.notify_all();
}

Result<void> Background::finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.empty() && !is_working_; });
    return std::exchange(result_, {});
}

void Background::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
        if (ends_) return;
        const Work work = std::move(waiting_.front());
        waiting_.pop_front();
        if (result_) {
            is_working_ = true;
            lock.unlock();
            auto done = work();
            lock.lock();
            is_working_ = false;
            if (!done) result_ = std::move(done);
        }
        changed_.notify_all();  // finish(), also where it waits for what was left out
    }
}

}  // namespace dp::trainer
