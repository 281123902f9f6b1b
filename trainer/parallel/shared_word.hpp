// SPDX-License-Identifier: Apache-2.0
//
// A word in memory that several processes map, on which they wait for each other (a futex): a waiting rank leaves the CPU to the
// others. Used by node_barrier.cpp and node_messages.cpp.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace dp::trainer {

using SharedWord = std::atomic<std::uint32_t>;
static_assert(SharedWord::is_always_lock_free && sizeof(SharedWord) == sizeof(std::uint32_t));

// Returns once the word is not `from`, after `most`, or for no reason. std::atomic::wait works for threads of one process only.
inline void wait_for_change(SharedWord& word, std::uint32_t from, std::chrono::milliseconds most) {
    const timespec time{most.count() / 1000, most.count() % 1000 * 1'000'000};
    syscall(SYS_futex, &word, FUTEX_WAIT, from, &time, nullptr, 0);
}

inline void wake_all(SharedWord& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace dp::trainer
