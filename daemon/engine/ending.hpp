// SPDX-License-Identifier: Apache-2.0
//
// How soon a step ends after one of its ranks failed. Pure.
//
// With proctrack/cgroup, scancel and preemption send SIGTERM to Slurm's tasks only, not to the daemon (only
// SIGKILL goes to the whole container). So the daemon cannot tell a killed rank from a step that was told to
// end. A death by a signal that asks politely is therefore judged a moment later, when all ranks may have
// followed. If it stands, the other ranks get Slurm's KillWait to write their checkpoints.
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "dp.pb.h"
#include "engine/time.hpp"

namespace dp {

// From the order to end the step until its ranks, which may print what libdp told them, get these signals.
struct GracePeriod {
    Time term;
    Time kill;
    bool operator==(const GracePeriod&) const = default;
};
inline constexpr GracePeriod kBroken{Time(250), Time(1250)};        // a crash: nothing good can follow
inline constexpr GracePeriod kFailed{Time(250), Time(30000)};       // an exit code: the others may clean up
inline constexpr GracePeriod kTerminated{Time(5000), Time(30000)};  // told to end: they were told, too

// How long a rank that Slurm has told to end may take (--dp-on-failure=restart).
inline constexpr Time kToldHolds{60000};

inline wire::Abort abort_message(std::string reason, GracePeriod grace) {
    wire::Abort abort;
    abort.set_reason(std::move(reason));
    abort.set_term_after_ms(static_cast<uint32_t>(grace.term.count()));
    abort.set_kill_after_ms(static_cast<uint32_t>(grace.kill.count()));
    return abort;
}

// How long a death by a polite signal is held back: others may show that the whole step was told to end.
inline constexpr Time kPoliteDelay{300};

// How long all nodes hold back a connection that closed without goodbye: Slurm's SIGKILL for a whole step
// reaches its nodes' daemons some milliseconds apart, and none of them is a lost node.
inline constexpr Time kLostDelay{100};

// Whether a failed rank ended itself, perhaps because of a death that is held back: that one is the cause
// then. Signals except abort()'s come from outside or from a bug of its own.
inline bool left_by_itself(int wait_status) {
    return WIFEXITED(wait_status) || WTERMSIG(wait_status) == SIGABRT;
}

inline bool asks_politely(int signal) {
    constexpr int kPolite[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU};
    return std::find(std::begin(kPolite), std::end(kPolite), signal) != std::end(kPolite);
}

// For a non-zero wait status. A shell reports 128 + signal for its child.
inline GracePeriod grace_after(int wait_status) {
    if (WIFSIGNALED(wait_status)) return asks_politely(WTERMSIG(wait_status)) ? kTerminated : kBroken;
    const int code = WEXITSTATUS(wait_status);
    if (code <= 128) return kFailed;
    return asks_politely(code - 128) ? kTerminated : kBroken;
}

// Ends a node's ranks, once that is decided: what they are told, and when they get which signal.
class Termination {
 public:
    void begin(wire::Abort abort, Time now) {
        term_at_ = now + Time(abort.term_after_ms());
        kill_at_ = now + Time(abort.kill_after_ms());
        abort_ = std::move(abort);
    }
    // The next generation begins.
    void reset() { *this = Termination(); }
    // Null before it has begun.
    const wire::Abort* abort() const { return abort_ ? &*abort_ : nullptr; }

    // The signal that is due, each only once.
    std::optional<int> signal(Time now) {
        std::optional<int> due;
        for (auto [at, number] : {std::pair(&term_at_, SIGTERM), std::pair(&kill_at_, SIGKILL)}) {
            if (!*at || now < **at) continue;
            at->reset();
            due = number;
        }
        return due;
    }
    std::optional<Time> next_deadline() const { return earlier(term_at_, kill_at_); }
    bool has_signalled() const { return abort_ && !term_at_; }

 private:
    std::optional<wire::Abort> abort_;
    std::optional<Time> term_at_;
    std::optional<Time> kill_at_;
};

}  // namespace dp
