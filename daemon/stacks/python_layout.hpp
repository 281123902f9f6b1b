// SPDX-License-Identifier: Apache-2.0
//
// Where CPython keeps what a stack is read from: offsets in its structures, in bytes, on 64-bit machines. From 3.13 on
// each interpreter carries a table of them (_Py_DebugOffsets, at the start of _PyRuntime); before, they follow from the
// headers of each version. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "base/failure.hpp"
#include "stacks/python_lines.hpp"

namespace dp::stacks {

struct PythonVersion {
    unsigned major = 0, minor = 0;

    auto operator<=>(const PythonVersion&) const = default;
};

struct PythonLayout {
    struct {
        uint64_t first_interpreter;  // in _PyRuntime
    } runtime;
    struct {
        uint64_t next, first_thread;
    } interpreter;
    struct {
        uint64_t next, interpreter;
        uint64_t frame;  // the innermost; where there are C frames (3.11, 3.12), the innermost of those
        uint64_t thread_id;
        uint64_t native_id;  // 0: there is none; then thread_id is pthread_self()
    } thread;
    bool has_c_frames;
    struct {
        uint64_t of_c_frame;  // in a C frame
        uint64_t previous, code, instruction;
        unsigned instruction_size;  // bytes: a number's or a pointer's
        uint64_t owner;             // 0: there is none
        unsigned not_of_functions;  // from this owner on
        uint64_t generator;         // whose frame it is; 0: the owner says it
        uint64_t variables,
            value_stack;  // where its variables begin, and what points to their end; 0: they fill the frame
    } frame;
    struct {
        uint64_t file, name, first_line, lines;
        uint64_t instructions;  // 0: a frame's instruction is a number (of instruction_bytes), not an address
        unsigned instruction_bytes;
    } code;
    LineTable line_table;
    struct {
        uint64_t length, state, ascii, wide;  // where the characters of one and of the other begin
    } text;
    struct {
        uint64_t size, content;
    } bytes;
};

// The first number of an interpreter's table, and how many of its numbers are enough for what follows.
inline constexpr uint64_t kDebugCookie = 0x7970677562656478;  // "xdebugpy"
inline constexpr size_t kDebugOffsets = 96;

// Of 3.9 to 3.12. Fails if this version is not known.
Try<PythonLayout> layout_of_version(PythonVersion version);

// Of the table that an interpreter carries. Fails if it is none, or of a version that is not known.
Try<PythonLayout> layout_of_table(std::span<const uint64_t, kDebugOffsets> table);

}  // namespace dp::stacks
