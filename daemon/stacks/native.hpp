// SPDX-License-Identifier: Apache-2.0
//
// The C, C++ and Fortran calls of another process's threads, unwound from snapshots of them with elfutils' libdwfl. What it
// reads is the process's own files and memory: the unwind tables and the symbols of those files that calls are in, and lines
// where a file has little debug information. Nothing else is looked for, neither on disk nor on the network.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "stacks/process.hpp"
#include "stacks/stack.hpp"

namespace dp::stacks {

struct NativeFrame {
    Frame frame;
    std::string module;  // the path of the program or library that it is in
    bool is_named = false;
    // As the function finds them when the call that it is in returns: where it goes on, its stack pointer, and the registers that
    // calls keep, which have its variables. 0: not known.
    uint64_t instruction = 0, stack_pointer = 0;
    std::vector<uint64_t> kept_registers = {};

    bool operator==(const NativeFrame&) const = default;
};

struct NativeStack {
    std::vector<NativeFrame> frames;
    std::string incomplete;
};

// A process takes at most this long: a few milliseconds where there are CPUs, more on a node that is busy.
inline constexpr std::chrono::milliseconds kNativePatience{600};
using NativeClock = std::chrono::steady_clock;

class NativeReader {
 public:
    // `process` must outlive it. `python`: the path of the module with the interpreter, to whose calls alone stacks are read
    // then; "" reads whole ones. `until`: an earlier end than that of kNativePatience, which counts from here.
    NativeReader(const Process& process, const std::string& python, NativeClock::time_point until);
    ~NativeReader();
    NativeReader(const NativeReader&) = delete;
    NativeReader& operator=(const NativeReader&) = delete;

    // `thread` is a number of this pid namespace.
    NativeStack read(pid_t thread);

 private:
    struct Session;
    std::unique_ptr<Session> session_;
};

// What a person wants to see: no unnamed functions that a named one of the same library has called, and nothing outside of main.
std::vector<Frame> shown_frames(std::vector<NativeFrame> frames);

// Those that the innermost Python call of a thread has called: up to the interpreter, which is in `python`, the path of a module.
std::vector<NativeFrame> below_python(std::vector<NativeFrame> frames, std::string_view python);

}  // namespace dp::stacks
