// SPDX-License-Identifier: Apache-2.0
//
// What the shadow keeps of four bytes, and what it makes of an access to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dp::cuda_emulator {

enum class Access { read, volatile_read, write, atomic };

// Who accessed the bytes last, when: in the block's time (progress.hpp; 0: never), and exchanges of the thread's warp.
struct Cell {
    std::uint64_t written = 0, read = 0;
    std::uint32_t written_in_exchange = 0, read_in_exchange = 0;
    std::uint16_t writer = 0, reader = 0;
    // Which of the four bytes, one bit each: of the last write, of the last read, and of all writes of the block.
    std::uint8_t written_bytes = 0, read_bytes = 0, bytes_of_block = 0;
    // Whether the last write was an atomic; whether others of the launch's blocks, of the block's warps, or of the warp's lanes
    // did the same where nothing orders it with the last.
    bool is_atomic : 1 = false, is_written_by_blocks : 1 = false, is_written_by_threads : 1 = false;
    bool is_read_by_blocks : 1 = false, is_read_by_warps : 1 = false, is_read_by_lanes : 1 = false;
};

// The thread that accesses, and when.
struct Now {
    std::uint64_t launch, block, barriers;
    std::uint32_t exchanges;
    std::uint16_t thread;
    bool may_be_cached =
        false;  // a read that is not volatile, by which a thread may see what was there before
};

struct Fault {
    enum Kind { none, unwritten, after_write, after_read, unfenced } kind = none;
    bool is_other_block = false;
    std::uint16_t other = 0;
};

// Whether something orders an access of that time with one now by another thread. `other_threads`: whether there were more at that time.
// Of blocks nothing does here.
bool is_ordered(std::uint64_t barriers, std::uint32_t exchanges, std::uint16_t thread, bool other_threads,
                const Now& now);

class Releases;
// Whether it may be done, and that it is. Of shared memory a block has its own. `releases`: what orders blocks, if anything does.
Fault note_access(Cell& cell, std::uint8_t bytes, Access access, bool is_shared, const Now& now,
                  const Releases* releases = nullptr);

// ---- by instrumentation.cpp

// Whether this is a thread of a kernel, and the place is not one of its stack.
bool is_watched(const void* place);

// An access by code that returns to `code`.
void watch(const void* place, std::size_t bytes, Access access, const void* code);
// "at FILE:LINE", as far as known, of what returns to `code`.
std::string source_of(const void* code);

}  // namespace dp::cuda_emulator
