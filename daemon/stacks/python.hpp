// SPDX-License-Identifier: Apache-2.0
//
// The Python calls of another process, read from its memory while it runs: nothing in it is stopped or changed.
// CPython 3.9 to 3.14, 64 bits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stacks/process.hpp"
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

    // The path of the program or library that contains the interpreter.
    const std::string& file() const { return file_; }

 private:
    const Process* process_ = nullptr;
    std::string file_;
    PythonLayout layout_{};
    uint64_t runtime_ = 0;    // _PyRuntime
    uint64_t code_type_ = 0;  // PyCode_Type

    bool list_threads(uint64_t interpreter, std::vector<uint64_t>& threads) const;
    std::vector<ThreadStack> threads_of(uint64_t interpreter) const;
    pid_t number_of(uint64_t thread) const;
    ThreadStack stack_of(uint64_t thread) const;
    // A call as it lies there.
    struct Call {
        uint64_t frame = 0, code = 0, instruction = 0;
    };
    using Calls = std::vector<Call>;
    std::optional<Calls> read_calls(uint64_t thread) const;
    bool are_of_one_moment(const Calls& one, const Calls& other) const;
    std::optional<uint64_t> innermost_frame(uint64_t thread) const;
    std::optional<Frame> in_words(const Call& call) const;
    std::optional<std::string> read_text(uint64_t address) const;
    std::optional<std::string> read_bytes(uint64_t address) const;
};

}  // namespace dp::stacks
