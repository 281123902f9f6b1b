// SPDX-License-Identifier: Apache-2.0
//
// dpctl, run by the daemon for what would need libraries that it is not linked with.
#pragma once

#include <event2/event.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.hpp"
#include "base/fd.hpp"
#include "engine/time.hpp"
#include "loop/timer.hpp"

namespace dp {

// The dpctl beside this program, else the installed one.
std::string dpctl_program();

// Starts it with its standard output going to the descriptor, and its standard input coming from the other one, or being empty. It
// inherits nothing else, not even an environment. 0: it could not be started.
pid_t spawn_helper(std::vector<std::string> command, int output, int input = -1);

// One run of it, and what it writes until it closes its output.
class HelperRun {
 public:
    enum class End { done, too_late, wrong };
    // What it has written and nobody has taken yet. False: it is wrong, or too much.
    using OnSaid = std::function<bool(std::string& said)>;
    // Once, and not if the run is destroyed before; the function may destroy the run.
    using OnEnd = std::function<void(End end)>;

    HelperRun(OnSaid on_said, OnEnd on_end) : on_said_(std::move(on_said)), on_end_(std::move(on_end)) {}
    ~HelperRun();  // ends the program
    HelperRun(const HelperRun&) = delete;
    HelperRun& operator=(const HelperRun&) = delete;

    // Once. Without `patience` it may run for as long as it likes.
    Try<void> start(event_base* base, const std::vector<std::string>& command,
                    std::optional<Time> patience = {});
    // To its standard input; a few bytes. After hush() no more comes.
    void tell(const std::string& bytes) const;
    void hush() { input_.reset(); }
    // As much of it as its standard input takes without waiting; returns how many bytes.
    size_t give(std::string_view bytes) const;
    // Gives it the rest, closes its standard input and waits until it has closed its output. False: it has not within this time.
    bool complete(std::string_view rest, Time patience);
    // 0: it does not run.
    pid_t pid() const { return program_; }
    // From now on it may run for as long as it likes.
    void relax() { deadline_.reset(); }
    // Ends the program. Returns its pid if the kernel has not let it go yet, else 0.
    pid_t end();

 private:
    using Clock = std::chrono::steady_clock;
    OnSaid on_said_;
    OnEnd on_end_;
    pid_t program_ = 0;
    Fd output_, input_;
    std::string said_;
    EventPtr event_;
    std::optional<Clock::time_point> deadline_;

    static void on_output(int, short what, void* run);
    void wait_for_output();
    void finish(End end);
};

}  // namespace dp
