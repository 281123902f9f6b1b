// SPDX-License-Identifier: Apache-2.0
//
// The Python calls of another process, read from its memory while it runs: nothing in it is stopped or changed.
// CPython 3.9 to 3.14, 64 bits.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stacks/process.hpp"
#include "stacks/python_files.hpp"
#include "stacks/python_layout.hpp"
#include "stacks/stack.hpp"

namespace dp::stacks {

class Python {
 public:
    // nullopt: there is no Python in the process. Fails if there is one whose frames cannot be read. `process` must
    // outlive it.
    static Try<std::optional<Python>> find(const Process& process);

    // Of each thread that has run Python code, the main thread first. What cannot be read is missing, and the stack says
    // so.
    std::vector<ThreadStack> stacks() const;

    // Where the main thread is, for many looks a second.
    struct Place {
        // Equal while its calls are the same, those outside of the innermost one at the same instructions, and with the same variables
        // if they are not Python's own. 0: it was elsewhere before it could be read.
        uint64_t number = 0;
        uint64_t line = 0;                        // of the innermost call
        PythonFile innermost = PythonFile::user;  // whose the code is that it is in
    };
    Place place() const;

    // The path of the program or library that contains the interpreter.
    const std::string& file() const { return file_; }

 private:
    const Process* process_ = nullptr;
    std::string file_;
    PythonLayout layout_{};
    uint64_t runtime_ = 0;              // _PyRuntime
    uint64_t code_type_ = 0;            // PyCode_Type
    mutable uint64_t main_thread_ = 0;  // as place() has found it
    // What place() has read of code, which may be another one's later, at the price of a line that is not right.
    mutable std::map<std::pair<uint64_t, uint64_t>, uint32_t> lines_;  // by code and instruction
    mutable std::map<uint64_t, PythonFile> files_;                     // by code

    bool list_threads(uint64_t interpreter, std::vector<uint64_t>& threads) const;
    std::vector<ThreadStack> threads_of(uint64_t interpreter) const;
    pid_t number_of(uint64_t thread) const;
    ThreadStack stack_of(uint64_t thread) const;
    // A call as it lies there.
    struct Call {
        uint64_t frame = 0, code = 0, instruction = 0;
    };
    using Calls = std::vector<Call>;
    std::optional<Calls> read_calls(uint64_t thread, size_t most) const;
    bool are_of_one_moment(const Calls& one, const Calls& other) const;
    std::optional<uint64_t> innermost_frame(uint64_t thread) const;
    std::optional<Frame> in_words(const Call& call) const;
    std::optional<uint32_t> line_of_call(const Call& call) const;
    std::string variables_of(const Call& call, uint64_t inner) const;
    uint64_t line_in_short(const Call& call) const;
    PythonFile file_of(uint64_t code) const;
    std::optional<std::string> read_text(uint64_t address) const;
    std::optional<std::string> read_bytes(uint64_t address) const;
};

}  // namespace dp::stacks
