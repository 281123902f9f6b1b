// SPDX-License-Identifier: Apache-2.0
//
// Aborts something, once, that may hang in doing so (NCCL's communicator with a dead peer): in a thread, and
// if that takes too long, for good. Thread-safe. Calls nothing of NCCL's, so that it can be tested without. For libdp-nccl
// (nccl/nccl.cpp) and the trainer's CUDA module.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

namespace dp {

class AbortGuard {
 public:
    // `abort` runs at most once; `give_up` runs if it has not returned after `patience`.
    AbortGuard(std::function<void()> abort, std::function<void()> give_up, std::chrono::milliseconds patience)
        : abort_(std::move(abort)), give_up_(std::move(give_up)), patience_(patience) {}
    ~AbortGuard() { release(); }
    AbortGuard(const AbortGuard&) = delete;
    AbortGuard& operator=(const AbortGuard&) = delete;

    // Starts the abort and returns; gives up at once if the system has no thread. Does nothing after release.
    void fire() {
        std::lock_guard lock(mutex_);
        if (released_ || watching_.joinable()) return;
        try {
            watching_ = std::thread([this] { watch(); });
            aborting_ = std::thread([this] {
                abort_();
                std::lock_guard done_lock(mutex_);
                aborted_ = true;
                done_.notify_all();
            });
        } catch (const std::system_error&) {
            if (!watching_.joinable()) give_up_();  // else it does, when its patience ends
        }
    }

    // After this, `abort` neither starts nor runs. Returns whether it never ran.
    bool release() {
        {
            std::lock_guard lock(mutex_);
            released_ = true;
        }
        if (aborting_.joinable()) aborting_.join();
        if (watching_.joinable()) watching_.join();
        return !aborted_;
    }

 private:
    void watch() {
        std::unique_lock lock(mutex_);
        if (done_.wait_for(lock, patience_, [this] { return aborted_; })) return;
        lock.unlock();
        give_up_();
    }

    std::function<void()> abort_;
    std::function<void()> give_up_;
    std::chrono::milliseconds patience_;
    std::mutex mutex_;
    std::condition_variable done_;
    bool released_ = false;
    bool aborted_ = false;
    std::thread aborting_;
    std::thread watching_;
};

// NCCL's own abort may wait for ever (a device that hangs).
inline constexpr std::chrono::milliseconds kAbortPatience = std::chrono::seconds(10);

[[noreturn]] inline void give_up_on_nccl(std::uint32_t rank, std::chrono::milliseconds patience) {
    std::fprintf(stderr,
                 "slurm-dp: rank %u: NCCL did not end its communicator within %d s; ending the process\n",
                 rank, static_cast<int>(patience.count() / 1000));
    _exit(EXIT_FAILURE);
}

// Runs `abort`, and returns once it has ended; ends the process if it hangs.
inline void abort_or_exit(std::uint32_t rank, std::function<void()> abort,
                          std::chrono::milliseconds patience = kAbortPatience) {
    AbortGuard guard(
        std::move(abort), [rank, patience] { give_up_on_nccl(rank, patience); }, patience);
    guard.fire();
}

}  // namespace dp
