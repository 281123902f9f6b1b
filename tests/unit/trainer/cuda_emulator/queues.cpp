// SPDX-License-Identifier: Apache-2.0
#include "queues.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "graphs.hpp"

namespace dp::cuda_emulator {
namespace {

// With a seed, one call in so many runs a work.
constexpr unsigned kCalls = 4;

struct Mode {
    std::atomic<bool> is_late = false;
    std::optional<std::uint64_t> seed;

    Mode() {
        const char* said = std::getenv("DP_CUDA_EMULATOR_STREAMS");
        if (said == nullptr) return;
        const std::string mode = said;
        unsigned long long number = 0;
        int length = 0;
        if (std::sscanf(said, "late:%llu%n", &number, &length) == 1 && said[length] == '\0') {
            seed = number;
        } else if (mode != "late") {
            std::fprintf(stderr, "emulated GPU: DP_CUDA_EMULATOR_STREAMS is late or late:SEED, not %s\n",
                         said);
            std::abort();
        }
        is_late = true;
    }
};
Mode& mode() {
    static auto* the_mode = new Mode;
    return *the_mode;
}

struct Waiting {
    std::uint64_t number;  // of its stream's works
    After after;
    Activity activity;
    std::function<void()> work;
};

// Never freed: a work may run after the static objects.
struct Queues {
    std::mutex mutex;
    std::map<cudaStream_t, std::deque<Waiting>> streams;
    bool is_running = false;
    std::mt19937_64 random{mode().seed.value_or(0)};
};
Queues& queues() {
    static auto* all = new Queues;
    return *all;
}

using Counts = std::map<cudaStream_t, std::uint64_t>;

// These works and all that they come after.
void add(const Queues& all, const After& works, Counts& needed) {
    for (const Works& some : works) {
        std::uint64_t& count = needed[some.stream];
        if (count >= some.count) continue;
        const std::uint64_t before = std::exchange(count, some.count);
        const auto found = all.streams.find(some.stream);
        if (found == all.streams.end()) continue;
        for (const Waiting& one : found->second)
            if (one.number > before && one.number <= some.count) add(all, one.after, needed);
    }
}

// One of the streams whose next work may run; of those that are needed, if that is said.
std::optional<cudaStream_t> chosen(Queues& all, const Counts* needed) {
    std::vector<cudaStream_t> ready;
    for (const auto& [stream, works] : all.streams) {
        if (works.empty() || !have_ended(works.front().after)) continue;
        if (needed != nullptr) {
            const auto count = needed->find(stream);
            if (count == needed->end() || works.front().number > count->second) continue;
        }
        ready.push_back(stream);
    }
    if (ready.empty()) return std::nullopt;
    return ready[all.random() % ready.size()];
}

void run_next(Queues& all, std::unique_lock<std::mutex>& lock, cudaStream_t stream) {
    auto& works = all.streams[stream];
    Waiting one = std::move(works.front());
    works.pop_front();
    all.is_running = true;
    lock.unlock();
    one.activity.begin();
    one.work();
    one.activity.end();
    lock.lock();
    all.is_running = false;
    end_work(stream);  // now others look for the next
}

std::mutex pinned_mutex;
std::map<const char*, std::size_t>& pinned() {
    static auto* all = new std::map<const char*, std::size_t>;
    return *all;
}

}  // namespace

bool are_late() {
    return mode().is_late;
}
void set_late(bool late) {
    mode().is_late = late;
}

cudaError_t queue(Did what, cudaStream_t stream, Name name, std::vector<Range> ranges,
                  std::function<void()> work) {
    return queue(stream, {what, name, std::move(ranges), std::move(work)});
}

cudaError_t queue(cudaStream_t stream, const GraphNode& node) {
    cudaError_t result = cudaSuccess;
    if (keep_if_captured(stream, node, result)) return result;
    count_launch();
    if (!are_late()) {
        const Doing doing(node.what, stream);
        node.work();
        return cudaSuccess;
    }
    order_work(stream, node.name, node.ranges);
    Queues& all = queues();
    std::unique_lock lock(all.mutex);
    After after = begin_work(stream);
    const std::uint64_t number = after.back().count + 1;
    all.streams[stream].push_back({number, std::move(after), Activity(node.what, stream), node.work});
    if (!mode().seed || all.is_running || all.random() % kCalls != 0) return cudaSuccess;
    if (const auto next = chosen(all, nullptr)) run_next(all, lock, *next);
    return cudaSuccess;
}

bool run_one_of(const After& works) {
    if (!are_late()) return false;
    Queues& all = queues();
    std::unique_lock lock(all.mutex);
    if (all.is_running) return false;
    Counts needed;
    add(all, works, needed);
    const bool any = mode().seed && all.random() % kCalls == 0;
    const auto next = chosen(all, any ? nullptr : &needed);
    if (!next) return false;
    run_next(all, lock, *next);
    return true;
}

void note_pinned(void* place, std::size_t bytes) {
    const std::lock_guard lock(pinned_mutex);
    pinned()[static_cast<char*>(place)] = bytes;
}
void forget_pinned(const void* place) {
    const std::lock_guard lock(pinned_mutex);
    pinned().erase(static_cast<const char*>(place));
}
bool is_pinned(const void* place) {
    const std::lock_guard lock(pinned_mutex);
    auto after = pinned().upper_bound(static_cast<const char*>(place));
    if (after == pinned().begin()) return false;
    const auto& [first, bytes] = *--after;
    return static_cast<const char*>(place) < first + bytes;
}

}  // namespace dp::cuda_emulator
