// SPDX-License-Identifier: Apache-2.0
#include "accesses.hpp"

#include "releases.hpp"

namespace dp::cuda_emulator {
namespace {

unsigned warp_of(std::uint16_t thread) {
    return thread / 32u;
}

// Of the launch's blocks, one that began earlier, or later and is there as well.
bool is_of_other_block(std::uint64_t time, const Now& now) {
    return time < now.block || time > now.barriers;
}

// By what is in the block, or by what orders blocks.
bool is_ordered(std::uint64_t barriers, std::uint32_t exchanges, std::uint16_t thread, bool other_threads,
                const Now& now, const Releases* releases) {
    return is_ordered(barriers, exchanges, thread, other_threads, now) ||
           (releases != nullptr && is_of_other_block(barriers, now) &&
            releases->order(barriers, exchanges, thread, other_threads, now) == Releases::Order::whole);
}

Fault with_last_write(const Cell& cell, std::uint8_t bytes, Access access, std::uint64_t since,
                      const Now& now, const Releases* releases) {
    if (cell.written < since || (cell.written_bytes & bytes) == 0) return {};
    if (access == Access::atomic && cell.is_atomic) return {};
    const bool by_blocks = cell.is_written_by_blocks;
    if (!by_blocks && is_ordered(cell.written, cell.written_in_exchange, cell.writer,
                                 cell.is_written_by_threads, now, releases))
        return {};
    if (!by_blocks && releases != nullptr &&
        releases->order(cell.written, cell.written_in_exchange, cell.writer, cell.is_written_by_threads,
                        now) == Releases::Order::but_for_a_fence)
        return {Fault::unfenced, true, cell.writer};
    return {Fault::after_write, by_blocks || is_of_other_block(cell.written, now), cell.writer};
}

Fault with_last_read(const Cell& cell, std::uint8_t bytes, std::uint64_t since, const Now& now,
                     const Releases* releases) {
    if (cell.read < since || (cell.read_bytes & bytes) == 0) return {};
    const bool by_blocks = cell.is_read_by_blocks;
    const bool same_exchange =
        warp_of(cell.reader) == warp_of(now.thread) && cell.read_in_exchange == now.exchanges;
    const bool by_threads = cell.is_read_by_warps || (cell.is_read_by_lanes && same_exchange);
    if (!by_blocks && is_ordered(cell.read, cell.read_in_exchange, cell.reader, by_threads, now, releases))
        return {};
    return {Fault::after_read, by_blocks || is_of_other_block(cell.read, now), cell.reader};
}

void note_read(Cell& cell, std::uint8_t bytes, std::uint64_t since, const Now& now) {
    const auto begin = [&](bool by_blocks) {
        cell.read = now.barriers;
        cell.read_in_exchange = now.exchanges;
        cell.reader = now.thread;
        cell.read_bytes = bytes;
        cell.is_read_by_blocks = by_blocks;
        cell.is_read_by_warps = cell.is_read_by_lanes = false;
    };
    if (cell.read < since || cell.read_bytes != bytes) return begin(false);
    const bool by_blocks = cell.is_read_by_blocks || is_of_other_block(cell.read, now);
    if (cell.read != now.barriers) return begin(by_blocks);
    if (cell.is_read_by_warps) return;
    if (warp_of(cell.reader) != warp_of(now.thread)) {
        cell.is_read_by_warps = true;
    } else if (cell.read_in_exchange != now.exchanges) {
        begin(by_blocks);
    } else if (cell.reader != now.thread) {
        cell.is_read_by_lanes = true;
    }
}

void note_write(Cell& cell, std::uint8_t bytes, bool is_atomic, std::uint64_t since, const Now& now) {
    // The thread's own write, with which others' atomics are not in order.
    if (!cell.is_atomic && cell.written == now.barriers && cell.written_in_exchange == now.exchanges &&
        cell.writer == now.thread)
        is_atomic = false;
    const bool follows = is_atomic && cell.is_atomic && cell.written >= since && cell.written_bytes == bytes;
    cell.is_written_by_blocks =
        follows && (cell.is_written_by_blocks || is_of_other_block(cell.written, now));
    cell.is_written_by_threads =
        follows && cell.written == now.barriers && (cell.is_written_by_threads || cell.writer != now.thread);
    cell.bytes_of_block =
        static_cast<std::uint8_t>(cell.written < now.block ? bytes : cell.bytes_of_block | bytes);
    cell.written = now.barriers;
    cell.written_in_exchange = now.exchanges;
    cell.writer = now.thread;
    cell.written_bytes = bytes;
    cell.is_atomic = is_atomic;
}

}  // namespace

bool is_ordered(std::uint64_t barriers, std::uint32_t exchanges, std::uint16_t thread, bool other_threads,
                const Now& now) {
    if (is_of_other_block(barriers, now)) return false;
    if (barriers < now.barriers) return true;
    if (other_threads) return false;
    if (thread == now.thread) return true;
    return warp_of(thread) == warp_of(now.thread) && exchanges != now.exchanges;
}

Fault note_access(Cell& cell, std::uint8_t bytes, Access access, bool is_shared, const Now& now,
                  const Releases* releases) {
    const std::uint64_t since = is_shared ? now.block : now.launch;
    if (is_shared && access != Access::write &&
        (cell.written < now.block || (bytes & ~cell.bytes_of_block) != 0))
        return {Fault::unwritten};
    if (const Fault fault = with_last_write(cell, bytes, access, since, now, releases);
        fault.kind != Fault::none)
        return fault;
    if (access == Access::read || access == Access::volatile_read) {
        note_read(cell, bytes, since, now);
        return {};
    }
    if (const Fault fault = with_last_read(cell, bytes, since, now, releases); fault.kind != Fault::none)
        return fault;
    note_write(cell, bytes, access == Access::atomic, since, now);
    return {};
}

}  // namespace dp::cuda_emulator
