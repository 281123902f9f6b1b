// SPDX-License-Identifier: Apache-2.0
//
// A rank's connection to its node's daemon, below the C API: one socket, any number of concurrent calls.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "dp.pb.h"
#include "dp/dp.hpp"
#include "libdp/events.hpp"
#include "libdp/inbox.hpp"
#include "libdp/pending_calls.hpp"
#include "libdp/phases.hpp"
#include "libdp/world.hpp"

namespace dp {

class Client {
 public:
    // Connects, checks that the daemon belongs to this user, says hello and waits for the welcome.
    static Result<std::unique_ptr<Client>> connect(const WorldEnvironment& world);
    // Leaves (in the process that connected, not in a fork of it).
    ~Client();

    // Says goodbye and ends all calls, also later ones. Thread-safe.
    void leave();

    // Sends the request (its id is set here) and waits for the reply. Thread-safe.
    Result<wire::Reply> call(wire::Request request, std::chrono::milliseconds timeout);

    // Reports that this rank's communicator is ready.
    void tell_ready();

    // Says that this process can rejoin.
    void tell_enable_rejoin();

    // Leaves the generation once it ends, and waits for the next one. Not beside other calls.
    Result<wire::NextWorld> rejoin(std::chrono::milliseconds timeout);

    // Reports the training step. Never waits: skipped if the daemon reads slowly.
    void tell_progress(uint64_t step);

    // Enters a phase. Except for the first time, reads a clock and makes a few stores.
    Result<void> enter_phase(dp_phase_kind phase);

    // Logs a scalar of the training's present step; as cheap. `name` is one (is_scalar_name).
    Result<void> log_scalar(std::string_view name, double value);

    // From now on, delivers events also while no call is in progress; earlier ones at once, on this thread.
    uint64_t on_event(Events::Callback callback);
    void forget(uint64_t watch) { events_.forget(watch); }

    // The number of this rank's next collective in a group.
    uint64_t next_sequence(const std::string& group, const std::vector<uint32_t>& members);

 private:
    Fd socket_;
    pid_t owner_;
    std::atomic_flag left_;
    std::mutex write_mutex_;  // one frame at a time; guards also the next
    std::chrono::steady_clock::time_point progress_told_{};
    std::mutex sequences_mutex_;
    std::map<std::pair<std::string, std::vector<uint32_t>>, uint64_t> sequences_;
    Phases phases_;
    bool is_fork() const;                     // of the rank
    void tell_page(std::optional<int> made);  // its descriptor
    PendingCalls calls_;
    std::optional<uint32_t> left_generation_;  // the last one
    std::mutex next_mutex_;                    // guards the next two
    uint32_t generation_;
    std::optional<wire::NextWorld> next_;  // not entered yet
    std::condition_variable next_changed_;
    // An event that a call reads is only stored; call-backs run from on_event on, in the inbox's thread.
    Events events_;
    Inbox inbox_;

    Client(Fd socket, Fd taken_over, uint32_t generation);
    static void let_daemon_read(pid_t daemon);
    Result<void> greet(const WorldEnvironment& world, const std::string& shown);
    bool write_frame(const std::string& frame);
    void tell(const wire::FromRank& message);
    void deliver(const wire::ToRank* message);
    void end(const StepEvent& why);
    void lose_peer(const wire::PeerLost& lost);
    void begin_anew(const wire::NextWorld& world);
};

}  // namespace dp
