// SPDX-License-Identifier: Apache-2.0
#include "loop/sample_reader.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>

#include "base/text.hpp"
#include "common/read_file.hpp"
#include "loop/usage.hpp"
#include "record/entries.hpp"

namespace dp {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr uint64_t kKib = 1024, kMib = 1024 * kKib;

// Ranks of a node whose phases a sample has, of which each takes 11 bytes at most: a longer entry could not be read.
constexpr int kMostInDetail = 512;
static_assert(kMostInDetail * kEndedPhases * 11 < kMaxRecordEntry * 3 / 4);

// Counted in whole milliseconds from the beginning, so that no part of one gets lost from sample to sample.
uint32_t ms_since(int64_t before_ns, int64_t now_ns) {
    return static_cast<uint32_t>(
        std::clamp<int64_t>(now_ns / kNsPerMs - before_ns / kNsPerMs, 0, int64_t{1} << 31));
}

// What the process has in memory; 0 if it is gone. The second word of /proc/PID/statm is in pages (proc(5)).
uint32_t resident_mib(pid_t pid) {
    const std::string statm = read_file("/proc/" + std::to_string(pid) + "/statm");
    const auto words = split(statm, ' ');
    const auto pages = words.size() > 1 ? parse_number<uint64_t>(words[1]) : std::nullopt;
    return static_cast<uint32_t>(pages.value_or(0) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / kMib);
}

// "MemTotal:       16316412 kB"
uint64_t kib_of(std::string_view meminfo, std::string_view name) {
    const size_t at = meminfo.find(name);
    if (at == meminfo.npos) return 0;
    const size_t digit = meminfo.find_first_of("0123456789", at);
    const size_t end = meminfo.find(' ', std::min(digit, meminfo.size()));
    return digit == meminfo.npos || end == meminfo.npos
               ? 0
               : parse_number<uint64_t>(meminfo.substr(digit, end - digit)).value_or(0);
}

uint32_t used_mib() {
    const std::string meminfo = read_file("/proc/meminfo");
    const uint64_t all = kib_of(meminfo, "MemTotal:"), free = kib_of(meminfo, "MemAvailable:");
    return static_cast<uint32_t>((all - std::min(all, free)) / 1024);
}

// None if there are none.
void add_detail(record::Sample& sample, uint32_t task, const std::vector<PhaseInterval>& phases,
                int64_t at_ns) {
    if (phases.empty()) return;
    constexpr uint64_t kMostSteps = 31;  // of a byte that also has the phase
    // Whole microseconds of one clock, so that the phases of one sample end where those of the next begin.
    const auto us = [at_ns](int64_t ns) {
        return std::chrono::floor<std::chrono::microseconds>(std::chrono::nanoseconds(ns - at_ns)).count();
    };
    auto& detail = *sample.add_details();
    detail.set_task(task);
    detail.set_before_us(-us(phases.front().from_ns));
    detail.set_step(phases.front().step);
    uint64_t step = phases.front().step;
    for (const PhaseInterval& one : phases) {
        detail.add_length_us(static_cast<uint64_t>(us(one.until_ns) - us(one.from_ns)));
        const uint64_t steps = std::min(one.step - std::min(step, one.step), kMostSteps);
        step += steps;
        detail.mutable_step_and_phase()->push_back(static_cast<char>(steps << 3 | one.phase));
    }
}

// A list of zeros is as good as none.
template <typename List>
void drop_zeros(List& list) {
    if (std::ranges::all_of(list, [](auto one) { return one == 0; })) list.Clear();
}

}  // namespace

Traffic read_traffic(std::string_view proc_net_dev) {
    Traffic all;
    for (const std::string_view line : split(proc_net_dev, '\n')) {
        const size_t colon = line.find(':');
        if (colon == line.npos) continue;
        const size_t name = line.find_first_not_of(' ');
        if (line.substr(name, colon - name) == "lo") continue;
        std::vector<std::string_view> numbers = split(line.substr(colon + 1), ' ');
        std::erase(numbers, "");
        if (numbers.size() < 9) continue;
        all.received += parse_number<uint64_t>(numbers[0]).value_or(0);
        all.sent += parse_number<uint64_t>(numbers[8]).value_or(0);
    }
    return all;
}

namespace {

std::vector<NewScalars::Rank> logging_ranks(const std::vector<SampleReader::Rank>& ranks) {
    std::vector<NewScalars::Rank> logging;
    for (const SampleReader::Rank& rank : ranks)
        if (rank.connection)
            logging.push_back({static_cast<uint32_t>(&rank - ranks.data()), rank.rank, *rank.connection,
                               rank.page ? &*rank.page : nullptr});
    return logging;
}

}  // namespace

bool SampleReader::has_new_scalars(const std::vector<Rank>& ranks) const {
    return scalars_.has_new(logging_ranks(ranks));
}

record::Sample SampleReader::read(const std::vector<Rank>& ranks, int64_t now_ns, EndedPhases ended,
                                  int64_t entry_ns, bool is_last) {
    const bool are_kept = ended == EndedPhases::kept, are_recorded = ended == EndedPhases::recorded;
    record::Sample sample;
    std::map<ConnectionId, Counted> worlds;
    std::map<pid_t, int64_t> cpu;
    for (const Rank& rank : ranks) {
        Counted before, now;
        if (rank.connection) {
            before = now = worlds_[*rank.connection];
            if (rank.page)
                now = {phase_times(*rank.page, now_ns).value_or(before.phases), rank.page->steps,
                       are_kept ? before.ended_phases : rank.page->ended_count};
            if (rank.page && are_recorded && sample.details_size() < kMostInDetail)
                add_detail(sample, static_cast<uint32_t>(&rank - ranks.data()),
                           ended_phases(*rank.page, before.ended_phases, now_ns), entry_ns);
            worlds[*rank.connection] = now;
        }
        const std::array lists = {sample.mutable_idle_ms(), sample.mutable_compute_ms(),
                                  sample.mutable_load_ms(), sample.mutable_communication_ms(),
                                  sample.mutable_checkpoint_ms()};
        static_assert(lists.size() == kPhases);
        for (size_t phase = 0; phase < kPhases; ++phase)
            lists[phase]->Add(ms_since(before.phases[phase], now.phases[phase]));
        // What a process that has closed its world still says is what it said before.
        const int64_t step_before = steps_[rank.rank];
        const int64_t step = rank.connection && rank.step ? static_cast<int64_t>(*rank.step) : step_before;
        steps_[rank.rank] = step;
        // A page without steps is of a libdp that does not count them, or there is none. The first count may be a checkpoint's.
        sample.add_steps(now.own_steps > 0 ? static_cast<uint32_t>(now.own_steps -
                                                                   std::min(now.own_steps, before.own_steps))
                         : step_before > 0 ? static_cast<uint32_t>(std::max<int64_t>(step - step_before, 0))
                                           : 0);
        sample.add_step_count(step - step_before);
        const int64_t cpu_before = rank.pid > 0 ? cpu_ns_[rank.pid] : 0;
        const int64_t cpu_now = rank.pid > 0 ? cpu_ns_of(rank.pid).value_or(cpu_before) : 0;
        if (rank.pid > 0) cpu[rank.pid] = cpu_now;
        sample.add_cpu_ms(ms_since(cpu_before, cpu_now));
        sample.add_memory_mib(rank.pid > 0 ? resident_mib(rank.pid) : 0);
    }
    scalars_.add_to(sample, logging_ranks(ranks), is_last);
    worlds_ = std::move(worlds);
    cpu_ns_ = std::move(cpu);
    drop_zeros(*sample.mutable_idle_ms());
    drop_zeros(*sample.mutable_compute_ms());
    drop_zeros(*sample.mutable_load_ms());
    drop_zeros(*sample.mutable_communication_ms());
    drop_zeros(*sample.mutable_checkpoint_ms());
    drop_zeros(*sample.mutable_steps());
    drop_zeros(*sample.mutable_step_count());
    drop_zeros(*sample.mutable_cpu_ms());
    drop_zeros(*sample.mutable_memory_mib());
    sample.set_node_memory_mib(used_mib());
    const Traffic traffic = read_traffic(read_file("/proc/net/dev"));
    if (traffic_ && traffic.sent >= traffic_->sent && traffic.received >= traffic_->received) {
        sample.set_sent_kib(traffic.sent / kKib - traffic_->sent / kKib);
        sample.set_received_kib(traffic.received / kKib - traffic_->received / kKib);
    }
    traffic_ = traffic;
    return sample;
}

}  // namespace dp
