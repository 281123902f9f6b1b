// SPDX-License-Identifier: Apache-2.0
//
// What a launcher (slurmstepd's plugin, or dpctl) tells the daemon of its node: one packet of text an event,
// over the socket pair of NodeSetup. The daemon says its pid back, at once (the kernel vouches for it), and
// at its end perhaps that ranks are left.
//
//   task LOCAL PID        a rank's process was started
//   tiles LOCAL LIST      which tiles Slurm has bound it to ("3" or "0-1"); from the rank's task itself, before
//                         it becomes its program: nobody else knows
//   exit LOCAL STATUS     it ended; STATUS as in waitpid(2)
//   end                   the last local rank has ended: leave
//
// A hang-up without "end" means that the launcher was killed.
//
// With --dp-on-failure=restart the launcher's processes are keepers (keeper.hpp), each with a connection of its
// own to the daemon. There "task" and "exit" are about the rank's process in its present life, and
//
//   keep LOCAL            comes first: this is the keeper of that rank
//   told LOCAL SIGNAL     the rank was told to end, by that signal
//
// There, with --dp-record, also a rank's process says before it becomes its program (told_environment.hpp)
//
//   environment LOCAL GENERATION, then NAME=VALUE for each variable, each behind a null
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/failure.hpp"
#include "base/fd.hpp"

namespace dp {

struct ControlEvent {
    enum class Kind { task, tiles, exit, end, keep, told, environment } kind;
    uint32_t local_rank = 0;
    int value = 0;          // pid, wait status, signal or generation
    std::string text = {};  // tiles, not empty; or variables, each behind a null
    bool operator==(const ControlEvent&) const = default;
};

// The maximum size of a packet, and of a keeper's plan (1,000 ranks a node); what does not fit of tiles or
// variables is left out.
inline constexpr size_t kMaxControl = 8192;

std::string write_control(const ControlEvent& event);
Try<ControlEvent> read_control(std::string_view packet);

// The launcher's side. Never waits; a daemon that is gone is not an error.
void send_control(int fd, const ControlEvent& event);

// The daemon's side: the packet from which the launcher learns its pid.
void announce_daemon(int fd);

// The launcher's side: the pid of the daemon, once it has announced itself.
std::optional<pid_t> daemon_pid(int fd);

// The daemon's side, before it leaves: the step was to end, and ranks may live on where no daemon is left.
void announce_ranks_left(int fd);

// The launcher's side, once the daemon is gone: whether it said so. Reads everything that it said.
bool ranks_are_left(int fd);

// A pidfd of the daemon, or empty if it is gone. First opens the pidfd, then checks that the daemon still
// holds its end of `fd`, so that a reused pid is never taken for the daemon. Call it before "end" is sent.
Fd open_daemon(int fd, pid_t pid);

// How long a launcher waits for the daemon after "end": the broker stays for the other nodes (kBrokerLinger),
// then sends its last messages (kLeaveTimeout) and the rest of its record (kRecordPatience).
inline constexpr std::chrono::milliseconds kDaemonLeaves{5500};

// Waits until the process is gone, kills it at the deadline, and waits a little longer. Waits on the pidfd,
// not on a pipe of the process: descriptors close before a process leaves its cgroup.
enum class Ended { gone, killed, stuck };
Ended wait_until_gone(const Fd& pidfd, std::chrono::milliseconds timeout);

}  // namespace dp
