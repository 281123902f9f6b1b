// SPDX-License-Identifier: Apache-2.0
#include "races.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "queues.hpp"

namespace dp::cuda_emulator {
namespace {

// So many works of each stream come before.
using Clock = std::map<cudaStream_t, std::uint64_t>;

struct Known {
    std::uint64_t number;
    Name name;
    std::vector<Range> ranges;
};

struct Orders {
    std::mutex mutex;
    Clock host;
    std::map<cudaStream_t, Clock> streams;
    std::map<cudaEvent_t, Clock> events;
    std::map<const void*, Clock> communicators;
    std::map<cudaStream_t, std::deque<Known>> works;  // those that the host has not waited for
};
// Never freed: a work may be queued after the static objects.
Orders& orders() {
    static auto* all = new Orders;
    return *all;
}

void join(Clock& clock, const Clock& other) {
    for (const auto& [stream, count] : other) clock[stream] = std::max(clock[stream], count);
}

// Of a kernel, by addr2line, if it is there.
std::string text(const Name& name) {
    Dl_info about{};
    if (name.kernel == nullptr || dladdr(name.kernel, &about) == 0) return name.words;
    char address[32];
    std::snprintf(address, sizeof address, "0x%zx",
                  static_cast<std::size_t>(static_cast<const char*>(name.kernel) -
                                           static_cast<char*>(about.dli_fbase)));
    const std::string command =
        "addr2line -f -C -e '" + std::string(about.dli_fname) + "' " + address + " 2>/dev/null";
    char line[4096] = "";
    if (FILE* const output = popen(command.c_str(), "r"); output != nullptr) {
        if (std::fgets(line, sizeof line, output) == nullptr) line[0] = '\0';
        pclose(output);
    }
    line[std::strcspn(line, "\n")] = '\0';
    if (line[0] == '\0' || line[0] == '?') return std::string(name.words) + " at " + address;
    return std::string(name.words) + " " + line;
}

bool overlap(const Range& one, const Range& other) {
    const auto first = reinterpret_cast<std::uintptr_t>(one.first),
               second = reinterpret_cast<std::uintptr_t>(other.first);
    return first < second + other.bytes && second < first + one.bytes;
}

void check(const Known& now, const Known& before) {
    for (const Range& one : now.ranges)
        for (const Range& other : before.ranges) {
            if ((!one.is_written && !other.is_written) || !overlap(one, other)) continue;
            std::fprintf(stderr,
                         "emulated GPU: a race: %s %s memory that %s %s on another stream, with nothing that "
                         "orders them\n",
                         text(now.name).c_str(), one.is_written ? "writes" : "reads",
                         text(before.name).c_str(), other.is_written ? "writes" : "reads");
            std::abort();
        }
}

// The host's clock has grown.
void forget_ordered(Orders& all) {
    for (auto& [stream, works] : all.works)
        while (!works.empty() && works.front().number <= all.host[stream]) works.pop_front();
}

}  // namespace

void order_work(cudaStream_t stream, Name name, std::vector<Range> ranges, const void* communicator) {
    if (!are_late()) return;
    Orders& all = orders();
    const std::lock_guard lock(all.mutex);
    Clock& clock = all.streams[stream];
    join(clock, all.host);
    if (communicator != nullptr) join(clock, all.communicators[communicator]);
    Known now{++clock[stream], name, std::move(ranges)};
    for (const auto& [other, works] : all.works) {
        if (other == stream) continue;
        for (auto work = works.rbegin(); work != works.rend() && work->number > clock[other]; ++work)
            check(now, *work);
    }
    all.works[stream].push_back(std::move(now));
    if (communicator != nullptr) all.communicators[communicator] = clock;
}

void order_record(cudaEvent_t event, cudaStream_t stream) {
    if (!are_late()) return;
    const std::lock_guard lock(orders().mutex);
    orders().events[event] = orders().streams[stream];
}
void order_wait(cudaStream_t stream, cudaEvent_t event) {
    if (!are_late()) return;
    const std::lock_guard lock(orders().mutex);
    join(orders().streams[stream], orders().events[event]);
}
void forget_order(cudaEvent_t event) {
    if (!are_late()) return;
    const std::lock_guard lock(orders().mutex);
    orders().events.erase(event);
}

void order_host(cudaStream_t waited_for) {
    if (!are_late()) return;
    const std::lock_guard lock(orders().mutex);
    join(orders().host, orders().streams[waited_for]);
    forget_ordered(orders());
}
void order_host(cudaEvent_t waited_for) {
    if (!are_late()) return;
    const std::lock_guard lock(orders().mutex);
    join(orders().host, orders().events[waited_for]);
    forget_ordered(orders());
}
void order_host_after_all() {
    if (!are_late()) return;
    const std::lock_guard lock(orders().mutex);
    for (const auto& [stream, clock] : orders().streams) join(orders().host, clock);
    forget_ordered(orders());
}

}  // namespace dp::cuda_emulator
