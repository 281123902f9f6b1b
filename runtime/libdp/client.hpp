// SPDX-License-Identifier: Apache-2.0
//
// A rank's connection to its node's daemon: one socket, any number of concurrent calls. The C API (libdp.cpp)
// is a thin layer over this.
//
// A call that is alone reads its answer itself, so that no thread must be started and woken for it (a rank
// that only wants an id has no libdp thread). With the first dp_on_event or the second concurrent call, a
// thread takes over for good; only that thread runs call-backs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "dp.pb.h"
#include "dp/dp.hpp"
#include "libdp/events.hpp"
#include "libdp/phases.hpp"
#include "libdp/world.hpp"

namespace dp {

class Client {
 public:
    // Connects, checks that the daemon belongs to this user, says hello and waits for the welcome.
    static Result<std::unique_ptr<Client>> connect(const WorldEnvironment& world);
    // Says goodbye (in the process that connected, not in a fork of it).
    ~Client();

    // Sends the request (its id is set here) and waits for the reply. Thread-safe.
    Result<wire::Reply> call(wire::Request request, std::chrono::milliseconds timeout);

    // Reports that this rank's communicator is ready.
    void tell_ready();

    // Reports the training step. Never waits: skipped if the daemon reads slowly.
    void tell_progress(uint64_t step);

    // Enters a phase. Except for the first time, reads a clock and makes a few stores.
    Result<void> enter_phase(dp_phase_kind phase);

    // The daemon's events, from now on also when no call is in progress. Earlier events are delivered on
    // the calling thread.
    Events& listen();
    void forget(uint64_t watch) { events_.forget(watch); }

    // The number of this rank's next collective in a group.
    uint64_t next_sequence(const std::string& group, const std::vector<uint32_t>& members);

 private:
    struct Pending {
        std::condition_variable done;
        bool answered = false;
        wire::Reply reply;
    };
    class InProgress;

    Fd socket_;
    Fd take_over_;  // an eventfd: a call that is alone shall leave the reading to reader_
    pid_t owner_ = 0;
    std::recursive_mutex telling_;  // news are told in their order; before mutex_
    std::mutex read_mutex_;         // of who reads: guards input_; before mutex_
    std::string input_;             // of a frame that is not whole yet
    std::mutex mutex_;              // guards what follows
    std::thread reader_;
    bool alone_ = false;          // a call reads for itself
    std::deque<StepEvent> news_;  // read by a call, not told yet
    std::map<uint64_t, Pending*> pending_;
    std::map<std::pair<std::string, std::vector<uint32_t>>, uint64_t> sequences_;
    // Differs from the ids of an earlier process of this task, whose answers may still be under way.
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
    Phases phases_;

    Client() = default;
    Result<void> greet(const WorldEnvironment& world, const std::string& shown);
    bool write_frame(const std::string& frame);
    bool wait_for(Pending& pending, std::chrono::milliseconds time);
    void read_for(Pending& pending, std::chrono::milliseconds end);
    void receive_alone();
    bool receive(int flags);
    bool deliver_input();
    void deliver(const wire::ToRank& message);
    void end_all(dp_event_kind kind, const std::string& reason, std::vector<uint32_t> dead);
    void tell(StepEvent event);
    void tell_news();
    bool has_reader();
    void start_reader();
    void read_for_all();
};

}  // namespace dp
