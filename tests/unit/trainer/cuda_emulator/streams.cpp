// SPDX-License-Identifier: Apache-2.0
//
// Streams and events: see streams.hpp.
#include "streams.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "blocks.hpp"
#include "graphs.hpp"
#include "queues.hpp"
#include "races.hpp"

namespace dp::cuda_emulator {
namespace {

struct Stream {
    std::uint64_t begun = 0, ended = 0;
    std::uint64_t queued = 0;  // with what runs before its call returns
    After after;               // of other streams
};

// An event holds when it was recorded, and what it waits for.
struct Event {
    std::chrono::steady_clock::time_point at = {};
    After works = {};
    bool takes_times = false;
    cudaStream_t stream = nullptr;
    std::uint64_t queued = 0;
};

std::mutex mutex;
std::condition_variable changed;
std::uint64_t changes = 0;
// Never freed: a work may end after the static objects.
std::map<cudaStream_t, Stream>& streams() {
    static auto* all = new std::map<cudaStream_t, Stream>;
    return *all;
}

bool are_over(const After& works) {
    return std::ranges::all_of(works, [](const Works& some) {
        const auto stream = streams().find(some.stream);
        return stream == streams().end() || stream->second.ended >= some.count;  // destroyed: all has ended
    });
}

After queued_on(cudaStream_t stream) {
    Stream& here = streams()[stream];
    std::erase_if(here.after, [](const Works& some) { return are_over({some}); });
    After works = here.after;
    works.push_back({stream, here.begun});
    return works;
}

struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
};
std::mutex copies_mutex;
std::vector<Copy> copies;

// With DP_CUDA_EMULATOR_EVENTS=refused events that take times cannot be recorded, as on a stream of another context, and with
// all-refused no event.
bool takes_event(bool takes_times) {
    const char* said = std::getenv("DP_CUDA_EMULATOR_EVENTS");
    return said == nullptr ||
           (std::string_view(said) != "all-refused" && !(takes_times && std::string_view(said) == "refused"));
}

// With DP_CUDA_EMULATOR_WAITS=said the end of the process says how often the host waited for all that it had queued on a stream: from
// there on that stream is idle until the host has queued more.
std::atomic<std::uint64_t> idle_waits;

void say_waits() {
    std::fprintf(stderr, "emulated GPU: the host waited %llu times for all that was queued\n",
                 static_cast<unsigned long long>(idle_waits.load()));
}

// The host waits until the stream has done so much of what was queued.
void count_wait(cudaStream_t stream, std::optional<std::uint64_t> until = {}) {
    static const bool says = [] {
        const char* said = std::getenv("DP_CUDA_EMULATOR_WAITS");
        const bool is_wanted = said != nullptr && std::string_view(said) == "said";
        if (is_wanted) std::atexit(say_waits);
        return is_wanted;
    }();
    const std::lock_guard lock(mutex);
    if (says && until.value_or(streams()[stream].queued) == streams()[stream].queued) ++idle_waits;
}

Event& event_of(cudaEvent_t handle) {
    return *reinterpret_cast<Event*>(handle);
}

}  // namespace

void copy_later(void* to, const void* from, std::size_t bytes) {
    const std::lock_guard lock(copies_mutex);
    copies.push_back({to, from, bytes});
}

void do_copies() {
    const std::lock_guard lock(copies_mutex);
    for (const Copy& one : std::exchange(copies, {})) std::memcpy(one.to, one.from, one.bytes);
}

void note_queued(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    ++streams()[stream].queued;
}

After begin_work(cudaStream_t stream) {
    do_copies();
    note_queued(stream);
    const std::lock_guard lock(mutex);
    After works = queued_on(stream);
    ++streams()[stream].begun;
    return works;
}

void end_work(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    ++streams()[stream].ended;
    ++changes;
    changed.notify_all();
}

bool have_ended(const After& works) {
    const std::lock_guard lock(mutex);
    return are_over(works);
}

void wait_for(const After& works) {
    std::unique_lock lock(mutex);
    while (!are_over(works)) {
        const std::uint64_t before = changes;
        lock.unlock();
        run_one_of(works);
        lock.lock();
        changed.wait(lock, [&] { return changes != before; });
    }
}

void wait_for(cudaStream_t stream) {
    do_copies();
    std::unique_lock lock(mutex);
    const After works = queued_on(stream);
    lock.unlock();
    wait_for(works);
}

void wait_for_late() {
    if (!are_late()) return;
    After works;
    {
        const std::lock_guard lock(mutex);
        for (const auto& [stream, state] : streams()) works.push_back({stream, state.begun});
    }
    wait_for(works);
    order_host_after_all();
}

}  // namespace dp::cuda_emulator

using namespace dp::cuda_emulator;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    *stream = reinterpret_cast<cudaStream_t>(new char);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    wait_for(stream);
    order_host(stream);
    const std::lock_guard lock(mutex);
    streams().erase(stream);  // not its handle: others may still wait for what it did
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (const cudaError_t refused = refuse_on(stream); refused != cudaSuccess) return refused;
    count_wait(stream);
    wait_for(stream);
    order_host(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    bool is_captured = false;
    const cudaError_t waits = wait_captured(stream, event, is_captured);
    if (is_captured) return waits;
    order_wait(stream, event);
    const std::lock_guard lock(mutex);
    for (const Works& works : event_of(event).works)
        if (works.stream != stream) streams()[stream].after.push_back(works);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    *event = reinterpret_cast<cudaEvent_t>(new Event{.takes_times = (flags & cudaEventDisableTiming) == 0});
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    forget_captured(event);
    forget_order(event);
    delete &event_of(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    do_copies();
    if (!takes_event(event_of(event).takes_times)) {
        note(cudaErrorInvalidResourceHandle);
        return cudaErrorInvalidResourceHandle;
    }
    bool is_captured = false;
    const cudaError_t recorded = record_captured(event, stream, is_captured);
    if (is_captured) return recorded;
    order_record(event, stream);
    const std::lock_guard lock(mutex);
    event_of(event).at = std::chrono::steady_clock::now();
    event_of(event).works = queued_on(stream);
    event_of(event).stream = stream;
    event_of(event).queued = streams()[stream].queued;
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (const cudaError_t refused = refuse_captured(event); refused != cudaSuccess) return refused;
    if (!have_ended(event_of(event).works)) {
        run_one_of(event_of(event).works);
        return cudaErrorNotReady;
    }
    order_host(event);
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (const cudaError_t refused = refuse_captured(event); refused != cudaSuccess) return refused;
    count_wait(event_of(event).stream, event_of(event).queued);
    wait_for(event_of(event).works);
    order_host(event);
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    *milliseconds = std::chrono::duration<float, std::milli>(event_of(end).at - event_of(begin).at).count();
    return cudaSuccess;
}
}
