// SPDX-License-Identifier: Apache-2.0
#include "common/phase_page.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace dp {
namespace {

// How often to retry reading a page that is being written.
constexpr int kTries = 8;

bool read_at(int fd, void* out, size_t size, size_t offset) {
    return pread(fd, out, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

}  // namespace

int64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void SharedPhasePage::begin(uint64_t phase, int64_t now_ns) {
    phase_.store(phase, std::memory_order_relaxed);
    since_ns_.store(now_ns, std::memory_order_relaxed);
    version_.store(kPhasePageVersion, std::memory_order_release);
}

void SharedPhasePage::enter(uint64_t phase, int64_t now_ns) {
    const uint64_t before = phase_.load(std::memory_order_relaxed);
    if (phase == before) return;
    const uint64_t sequence = sequence_.load(std::memory_order_relaxed);
    auto& total = total_ns_[before];
    const int64_t spent = now_ns - since_ns_.load(std::memory_order_relaxed);
    // No store may become visible before the odd number.
    sequence_.store(sequence + 1, std::memory_order_relaxed);
    total.store(total.load(std::memory_order_relaxed) + spent, std::memory_order_release);
    phase_.store(phase, std::memory_order_release);
    since_ns_.store(now_ns, std::memory_order_release);
    sequence_.store(sequence + 2, std::memory_order_release);
}

// Reads the sequence number before and after it, each with a read of its own: the order within one read
// is the kernel's.
std::optional<PhasePage> read_phase_page(int fd) {
    for (int i = 0; i < kTries; ++i) {
        PhasePage page;
        uint64_t before = 0;
        uint64_t after = 0;
        if (!read_at(fd, &before, sizeof before, offsetof(PhasePage, sequence)) ||
            !read_at(fd, &page, sizeof page, 0) ||
            !read_at(fd, &after, sizeof after, offsetof(PhasePage, sequence)))
            return std::nullopt;
        if (before == page.sequence && before == after && before % 2 == 0) return page;
    }
    return std::nullopt;
}

std::optional<PhaseTimes> phase_times(const PhasePage& page, int64_t now_ns) {
    if (page.version != kPhasePageVersion || page.phase >= kPhases) return std::nullopt;
    const int64_t longest = std::max<int64_t>(now_ns, 0);
    PhaseTimes times{};
    for (size_t i = 0; i < kPhases; ++i) times[i] = std::clamp<int64_t>(page.total_ns[i], 0, longest);
    const int64_t current = longest - std::clamp<int64_t>(page.since_ns, 0, longest);
    times[page.phase] += std::min(current, longest - times[page.phase]);
    return times;
}

}  // namespace dp
