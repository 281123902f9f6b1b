// SPDX-License-Identifier: Apache-2.0
#include "common/phase_page.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

namespace dp {
namespace {

// How often to retry reading a page that is being written.
constexpr int kTries = 8;

bool read_at(int fd, void* out, size_t size, size_t offset) {
    return pread(fd, out, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

// A store that readers in another process see whole. Nobody else writes, so loads may be plain.
template <typename Word>
void store(Word& shared, Word value) {
    static_assert(std::atomic_ref<Word>::is_always_lock_free);
    std::atomic_ref(shared).store(value, std::memory_order_release);
}

constexpr size_t kNameBytes = kMaxScalarName + 1;
using Name = std::array<uint64_t, kNameBytes / sizeof(uint64_t)>;
static_assert(sizeof(Name) == kNameBytes && sizeof(Name) == sizeof(PhasePage::Scalar::name));

Name words_of(std::string_view name) {
    Name words{};
    std::memcpy(words.data(), name.data(), name.size());
    return words;
}

std::string name_of(const PhasePage::Scalar& scalar) {
    char bytes[kNameBytes];
    std::memcpy(bytes, scalar.name, sizeof bytes);
    return {bytes, strnlen(bytes, sizeof bytes)};
}

}  // namespace

int64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void begin_phases(PhasePage& shared, uint64_t phase, int64_t now_ns) {
    store(shared.phase, phase);
    store(shared.since_ns, now_ns);
    store(shared.version, kPhasePageVersion);
}

void enter_phase(PhasePage& shared, uint64_t phase, int64_t now_ns) {
    const uint64_t before = shared.phase;
    if (phase == before) return;
    const int64_t total = shared.total_ns[before] + now_ns - shared.since_ns;
    // Each store becomes visible after those before it, and none before the odd number.
    store(shared.sequence, shared.sequence + 1);
    store(shared.total_ns[before], total);
    PhasePage::Ended& ended = shared.ended[shared.ended_count % kEndedPhases];
    store(ended.since_ns, shared.since_ns);
    store(ended.step_and_phase, shared.since_step << 8 | before);
    store(shared.ended_count, shared.ended_count + 1);
    store(shared.phase, phase);
    store(shared.since_ns, now_ns);
    store(shared.since_step, shared.steps);
    store(shared.sequence, shared.sequence + 1);
}

// The first call begins the first step: the time before it belongs to none. Nothing before the first phase: without phases nobody knows who
// waits for whom.
void end_step(PhasePage& shared, int64_t now_ns) {
    if (shared.version != kPhasePageVersion) return;
    PhaseTimes times = shared.total_ns;
    times[shared.phase] += now_ns - shared.since_ns;
    int64_t own = 0;
    for (size_t phase = 0; phase < kPhases; ++phase)
        if (phase != kWaits) own += times[phase] - shared.at_step_ns[phase];
    store(shared.sequence, shared.sequence + 1);
    if (shared.last_step_ns != 0) {
        store(shared.own_ns[shared.steps % kOwnTimes], own);
        store(shared.steps, shared.steps + 1);
    }
    store(shared.last_step_ns, now_ns);
    for (size_t phase = 0; phase < kPhases; ++phase) store(shared.at_step_ns[phase], times[phase]);
    store(shared.sequence, shared.sequence + 1);
}

bool is_scalar_name(std::string_view name) {
    return !name.empty() && name.size() <= kMaxScalarName &&
           std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
}

bool log_scalar(PhasePage& shared, std::string_view name, double value, uint64_t step) {
    const Name words = words_of(name);
    for (PhasePage::Scalar& one : shared.scalars) {
        const bool is_new = one.logged == 0;
        if (!is_new && !std::ranges::equal(one.name, words)) continue;
        store(shared.sequence, shared.sequence + 1);
        if (is_new)
            for (size_t i = 0; i < words.size(); ++i) store(one.name[i], words[i]);
        store(one.step, step);
        store(one.value, std::bit_cast<uint64_t>(value));
        store(one.logged, one.logged + 1);
        store(shared.sequence, shared.sequence + 1);
        return true;
    }
    return false;
}

// Reads the sequence number before and after the page: the order within one read is the kernel's.
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

std::vector<PhaseInterval> ended_phases(const PhasePage& page, uint64_t count, int64_t now_ns) {
    std::vector<PhaseInterval> found;
    if (page.version != kPhasePageVersion || count >= page.ended_count) return found;
    const uint64_t kept = std::min<uint64_t>(page.ended_count - count, kEndedPhases);
    int64_t at = 0;
    for (uint64_t i = page.ended_count - kept; i < page.ended_count; ++i) {
        const PhasePage::Ended& one = page.ended[i % kEndedPhases];
        const bool is_last = i + 1 == page.ended_count;
        const int64_t from = std::clamp<int64_t>(one.since_ns, at, std::max(at, now_ns));
        const int64_t until =
            std::clamp<int64_t>(is_last ? page.since_ns : page.ended[(i + 1) % kEndedPhases].since_ns, from,
                                std::max(from, now_ns));
        const size_t phase = one.step_and_phase & 0xff;
        at = until;
        if (phase < kPhases) found.push_back({from, until, phase, one.step_and_phase >> 8});
    }
    return found;
}

std::vector<LoggedScalar> logged_scalars(const PhasePage& page) {
    std::vector<LoggedScalar> found;
    for (size_t i = 0; i < kMostScalars && page.scalars[i].logged > 0; ++i) {
        const PhasePage::Scalar& one = page.scalars[i];
        std::string name = name_of(one);
        if (is_scalar_name(name))
            found.push_back({i, one.logged, std::move(name), std::bit_cast<double>(one.value), one.step});
    }
    return found;
}

std::optional<int64_t> own_time_of_step(const PhasePage& page) {
    if (page.version != kPhasePageVersion || page.steps < kHalfLife || page.total_ns[kWaits] <= 0)
        return std::nullopt;
    std::vector<std::pair<int64_t, double>> weighted;
    const uint64_t known = std::min<uint64_t>(page.steps, kOwnTimes);
    double all = 0;
    for (uint64_t age = 0; age < known; ++age) {
        const double weight = std::exp2(-static_cast<double>(age) / kHalfLife);
        const int64_t own = page.own_ns[(page.steps - 1 - age) % kOwnTimes];
        weighted.emplace_back(std::max<int64_t>(own, 0), weight);
        all += weight;
    }
    std::ranges::sort(weighted);
    double below = 0;
    for (const auto& [own, weight] : weighted)
        if ((below += weight) >= all / 2) return own;
    return weighted.back().first;
}

}  // namespace dp
