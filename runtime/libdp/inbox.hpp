// SPDX-License-Identifier: Apache-2.0
//
// The receiving side of a rank's connection to its node's daemon.
//
// A call that is alone reads its answer itself, so that no thread must be started and woken for it (a rank
// that only wants an id has none). The first dp_on_event or second concurrent call starts one, for good.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/fd.hpp"
#include "dp.pb.h"

namespace dp {

// A new thread inherits the mask, so that the program's signal handlers run in its own threads, not in ours.
class BlockedSignals {
 public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
    sigset_t before_;
};

class Inbox {
 public:
    // Called with each message, and with null at the end of the connection, by the thread that reads.
    using Deliver = std::function<void(const wire::ToRank* message)>;

    // The socket must stay open. `taken_over` is an eventfd.
    Inbox(int socket, Fd taken_over, Deliver deliver)
        : socket_(socket), taken_over_(std::move(taken_over)), deliver_(std::move(deliver)) {}
    // In a fork of the process there is no thread.
    ~Inbox() {
        if (thread_.joinable()) thread_.detach();
    }
    Inbox(const Inbox&) = delete;
    Inbox& operator=(const Inbox&) = delete;

    // For a call: reads until `done` or `end` if nobody else does. If another call reads, starts the thread.
    void read_until(const std::function<bool()>& done, std::chrono::milliseconds end);

    // Delivers what has arrived; from then on only the thread delivers. Throws std::system_error without one.
    void start();

    // Whether the caller is that thread.
    bool is_own_thread();

    // Before the end: waits for the thread, after the socket has been shut down, and starts no other one.
    void stop();

 private:
    const int socket_;
    const Fd taken_over_;  // readable once there is a thread: the call that reads stops
    const Deliver deliver_;
    std::mutex turn_;    // held by the one that reads, by the thread to the end; guards input_
    std::string input_;  // an incomplete frame
    std::atomic<bool> thread_reads_{false};
    std::mutex mutex_;  // guards the rest
    std::thread thread_;
    bool stopped_ = false;

    bool has_thread();
    bool receive(int flags);
    bool deliver_input();
};

}  // namespace dp
