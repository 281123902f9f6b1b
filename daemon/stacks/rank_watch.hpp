// SPDX-License-Identifier: Apache-2.0
//
// Watches a rank's task from outside: looks at where it is, many times a second, and says when it has stopped making progress
// (stillness.hpp) and what it does there. Nothing in it is changed; a thread that seems to hang and is busy is stopped for some
// microseconds (thread_snapshot.hpp).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/failure.hpp"
#include "stacks/busy_wait.hpp"
#include "stacks/process.hpp"
#include "stacks/python.hpp"
#include "stacks/stillness.hpp"
#include "stacks/tcp_traffic.hpp"
#include "stacks/waiting.hpp"

namespace dp::stacks {

class RankWatch {
 public:
    RankWatch(pid_t task, std::chrono::milliseconds timeout)
        : task_(task), timeout_(timeout), detector_(timeout) {}

    struct News {
        std::optional<Doing> still;  // missing: it moves again
        std::chrono::milliseconds stood{};
        ThreadStack calls;  // of its main thread, if it is still
    };
    // A look now. What has changed, if anything has. Fails if the task cannot be watched: it has ended, or may not be
    // read, perhaps not yet: until it executes its program it is Slurm's.
    Try<std::optional<News>> look(SteadyTime now);
    bool has_ended() const;
    // Nobody has looked for a while.
    void pause() { detector_.reset(); }

 private:
    pid_t task_;
    std::chrono::milliseconds timeout_;
    StillnessDetector detector_;
    bool told_still_ = false;
    SteadyTime judged_{};  // when it was asked whether it hangs
    // Of it and all that it has started: when it had been at its place for half of the timeout, then whenever that is asked.
    std::optional<TcpTraffic> traffic_;
    std::optional<SteadyTime> traffic_of_;  // when it had come to that place
    bool has_asked_traffic_ = false;        // there

    // What the task runs: itself, or what a shell script has started.
    std::unique_ptr<Process> program_;
    std::optional<Python> python_;
    SteadyTime found_{};  // when
    // In the kernel.
    struct Wait {
        uint64_t call = 0;   // which, from where: equal at equal calls; 0: it runs
        uint64_t place = 0;  // with its variables
    };
    Wait wait_;  // at the last look
    bool may_wait_busily_ = false;
    bool polls_ = false;  // it has been seen to wait from the same place again
    std::optional<BusyWait> busy_wait_;
    uint64_t busy_waits_ = 0;              // how many different ones there were
    SteadyTime unwind_at_{}, early_at_{};  // when to read it again, and when to do so early
    Look last_;
    SteadyTime measured_{};  // when all but the place of the last look was read
    SteadyTime seen_{};      // when its place could be read

    // How often to look for what a task runs, and to read what takes longer than a place.
    std::chrono::nanoseconds seldom() const {
        return std::max<std::chrono::nanoseconds>(std::chrono::seconds(1), timeout_ / 20);
    }
    Try<void> find_program(SteadyTime now);
    void look_at_place(Look& look);
    void look_at_native_place(Look& look);
    uint64_t place_of_busy_wait(SteadyTime now, bool seems_to_wait);
    Wait wait_in_kernel() const;
    void measure(Look& look) const;
    bool is_to_be_judged(SteadyTime now) const;
    std::optional<News> judge();
    std::optional<TcpTraffic> traffic() const;
    void note_traffic(SteadyTime now);
};

}  // namespace dp::stacks
