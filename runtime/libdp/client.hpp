// SPDX-License-Identifier: Apache-2.0
//
// A rank's conversation with its node's daemon: one socket, one reading thread, any number of calls at once.
// The C face (libdp.cpp) is a thin layer over this.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/fd.hpp"
#include "dp.pb.h"
#include "libdp/events.hpp"
#include "libdp/world.hpp"

namespace dp {

struct CallError {
    dp_status status;
    std::string message;
};
template <typename T>
using Call = tl::expected<T, CallError>;

class Client {
 public:
    // Connects, checks that the daemon belongs to this user, says hello and waits for the welcome.
    static Call<std::unique_ptr<Client>> connect(const WorldEnvironment& world);
    // Says goodbye (in the process that connected, not in a fork of it).
    ~Client();

    // Sends the request (its id is set here) and waits for the reply. Thread-safe.
    Call<wire::Reply> call(wire::Request request, std::chrono::milliseconds timeout);

    // This rank's communicator stands.
    void tell_ready();

    // How far its training is. Waits for nothing: where the daemon reads slowly it is left out.
    void tell_progress(uint64_t step);

    // What the daemon tells unasked.
    Events& events() { return events_; }

    // The number of the next meeting of a group, counted in this rank.
    uint64_t next_sequence(const std::string& group, const std::vector<uint32_t>& members);

 private:
    struct Pending {
        std::condition_variable done;
        bool answered = false;
        wire::Reply reply;
    };
    // `lock` holds mutex_.
    static bool answered_within(std::chrono::milliseconds time, Pending& pending,
                                std::unique_lock<std::mutex>& lock);

    Fd socket_;
    pid_t owner_ = 0;
    std::thread reader_;
    std::mutex mutex_;  // guards what follows
    std::map<uint64_t, Pending*> pending_;
    std::map<std::pair<std::string, std::vector<uint32_t>>, uint64_t> sequences_;
    // Not used before by an earlier process of this task, whose answers may still be on their way.
    uint64_t next_id_ = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    size_t calls_ = 0;  // in progress; the destructor waits for none
    std::condition_variable idle_;
    bool lost_ = false;
    std::string lost_reason_;
    std::string abort_reason_;
    bool closing_ = false;
    std::mutex write_mutex_;  // one frame at a time; guards also the next
    std::chrono::steady_clock::time_point progress_told_{};
    Events events_;

    Client() = default;
    Call<void> greet(const WorldEnvironment& world, const std::string& shown);
    bool write_frame(const std::string& frame);
    void read_loop();
    void deliver(const wire::ToRank& message);
    void end_all(dp_event_kind kind, const std::string& reason, std::vector<uint32_t> dead);
};

}  // namespace dp
