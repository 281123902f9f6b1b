// SPDX-License-Identifier: Apache-2.0
//
// What a native stack is unwound from: a thread's registers and its stack's memory, of one moment.
//
// A thread that waits in a system call is not stopped: /proc/PID/task/TID/syscall has its stack pointer and its
// instruction pointer, and that is enough for code without frame pointers. To stop it would also change its program:
// epoll_wait, semop, sigtimedwait, io_getevents, io_uring_enter and calls on sockets with SO_RCVTIMEO return EINTR then, and
// a send or a write that is half done returns what it has done (signal(7), and tests/unit/stacks/native_test.cpp). So only
// threads that run are stopped, and those that wait in a call which the kernel restarts unseen; each for the time of copying. (One that runs
// may just enter another call, or leave one at the end of its time: nobody can see that from outside.)
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "stacks/process.hpp"

namespace dp::stacks {

struct ThreadSnapshot {
    uint64_t instruction = 0, stack_pointer = 0;
    std::vector<uint64_t> registers;  // by DWARF's numbers; none: only the two above are known
    std::vector<std::byte> stack;     // from the stack pointer on
};

// A /proc/PID/task/TID/syscall of a thread that does not run.
struct SystemCall {
    int64_t number = -1;  // -1: it waits in the kernel for something else, such as a page
    std::array<uint64_t, 6> arguments{};
    uint64_t stack_pointer = 0, instruction = 0;
};

// Pure.
std::optional<SystemCall> parse_system_call(std::string_view text);

// The one that a thread waits in, or nullopt. `thread` is a number of this pid namespace, as in the functions below.
std::optional<SystemCall> system_call_of(pid_t process, pid_t thread);

// A wait4 or waitid.
bool waits_for_child(const SystemCall& call);

// Where the kernel writes how much of a timespec or timeval is left whenever the call is interrupted, also by a stop. Pure.
std::vector<uint64_t> remaining_times(const SystemCall& call);

// Without stopping it. nullopt: it runs, or went on meanwhile.
std::optional<ThreadSnapshot> snapshot_of_waiting(const Process& process, pid_t thread);

// Stops the thread and lets it go. One that is stopped already (SIGSTOP) stays so. Fails if it may not be stopped, is traced
// by another process, does not stop within 10 ms (100 ms if it runs), or waits in a call that would notice.
Try<ThreadSnapshot> snapshot_of_stopped(const Process& process, pid_t thread);

}  // namespace dp::stacks
