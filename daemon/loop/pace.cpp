// SPDX-License-Identifier: Apache-2.0
#include "loop/pace.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "common/read_file.hpp"
#include "loop/core_state.hpp"

namespace dp {
namespace {

std::optional<int64_t> word_of(std::string_view line, size_t number) {
    const auto words = split(line.substr(0, line.find('\n')), ' ');
    return number < words.size() ? parse_number<int64_t>(words[number]) : std::nullopt;
}

// In lines of "NAME VALUE".
std::optional<int64_t> value_of(std::string_view text, std::string_view name) {
    for (const std::string_view line : split(text, '\n'))
        if (line.starts_with(name) && line.substr(name.size()).starts_with(' '))
            return parse_number<int64_t>(line.substr(name.size() + 1));
    return std::nullopt;
}

// The cgroup's cpu.stat, or that of the next one above it which has a quota to speak of.
std::string cpu_stat_of(std::string_view proc_cgroup) {
    for (const std::string_view line : split(proc_cgroup, '\n')) {
        const auto parts = split(line, ':');
        if (parts.size() != 3) continue;
        const auto controllers = split(parts[1], ',');
        const bool is_v1 = std::ranges::find(controllers, "cpu") != controllers.end();
        if (!is_v1 && !parts[1].empty()) continue;
        const std::string root = "/sys/fs/cgroup/" + (is_v1 ? std::string(parts[1]) : "");
        for (std::string path(parts[2]); !path.empty(); path.resize(path.rfind('/'))) {
            std::string stat = read_file(root + path + "/cpu.stat");
            if (stat.find("nr_throttled") != stat.npos) return stat;
        }
    }
    return "";
}

PaceCounters counters_of(pid_t pid, bool looks_at_clock) {
    const std::string process = "/proc/" + std::to_string(pid) + "/";
    const std::string stat = read_file(process + "stat");
    PaceCounters counters = read_counters(read_file(process + "schedstat"), stat, read_file("/proc/net/snmp"),
                                          cpu_stat_of(read_file(process + "cgroup")));
    // Of the core on which the process ran last: field 39 of proc(5)'s stat.
    const size_t name = stat.rfind(") ");
    const auto core = name == stat.npos ? std::nullopt : word_of(stat.substr(name + 2), 39 - 3);
    if (!core) return counters;
    // One that sleeps leaves its core a lower clock.
    counters.core = read_core(*core, looks_at_clock && stat[name + 2] == 'R');
    return counters;
}

}  // namespace

PaceCounters read_counters(std::string_view schedstat, std::string_view stat, std::string_view snmp,
                           std::string_view cpu_stat) {
    PaceCounters counters;
    counters.core_waited_ns = word_of(schedstat, 1);
    // After the name, which may have anything in it; the state is field 3, major faults are field 12 (proc(5)).
    if (const size_t name = stat.rfind(") "); name != stat.npos)
        counters.major_faults = word_of(stat.substr(name + 2), 12 - 3);
    // Two lines: names, and values.
    std::optional<size_t> column;
    for (const std::string_view line : split(snmp, '\n')) {
        if (!line.starts_with("Tcp:")) continue;
        const auto words = split(line, ' ');
        if (column) {
            counters.retransmissions = word_of(line, *column);
        } else if (const auto found = std::ranges::find(words, "RetransSegs"); found != words.end()) {
            column = static_cast<size_t>(found - words.begin());
        }
    }
    counters.throttled_periods = value_of(cpu_stat, "nr_throttled");
    counters.periods = value_of(cpu_stat, "nr_periods");
    return counters;
}

bool PaceReader::has_slowed_down() const {
    return std::ranges::any_of(last_, [](const auto& one) {
        const Last& last = one.second;
        return last.own_ns - last.best_own_ns > last.best_own_ns / 10;
    });
}

void PaceReader::note_gpu(wire::RankPace& pace, pid_t process, const wire::NodeUsage& gpus) {
    const auto more = [](std::map<uint32_t, uint64_t>& first_seen, uint32_t tile, uint64_t now) {
        return now - std::min(now, first_seen.emplace(tile, now).first->second);
    };
    for (const auto& gpu : gpus.gpus()) {
        const uint64_t errors = gpu.has_lost_bits() ? more(lost_bits_, gpu.tile(), gpu.lost_bits()) : 0;
        const bool is_new = gpu.has_xid_line() && more(xid_lines_, gpu.tile(), gpu.xid_line()) > 0;
        if (std::ranges::find(gpu.pids(), process) == gpu.pids().end()) continue;
        if (gpu.has_is_slowed())
            pace.set_gpu_slowed(std::max(pace.gpu_slowed(), gpu.is_slowed() ? 1.0 : 0.0));
        if (gpu.has_clock_lost()) pace.set_gpu_clock_lost(std::max(pace.gpu_clock_lost(), gpu.clock_lost()));
        if (gpu.has_lost_bits())
            pace.set_gpu_errors(std::max(pace.gpu_errors(), static_cast<double>(errors)));
        if (gpu.has_xid_line())
            pace.set_gpu_xid(std::max(pace.gpu_xid(), is_new ? static_cast<double>(gpu.last_xid()) : 0.0));
    }
}

std::optional<wire::RankPace> PaceReader::read(uint32_t rank, ConnectionId connection, pid_t pid,
                                               const PhasePage& page, int64_t now_ns) {
    const auto own = own_time_of_step(page);
    const auto times = phase_times(page, now_ns);
    Last& last = last_[rank];
    const bool is_known = last.connection == connection;
    if (!own || !times || pid <= 0 || (is_known && page.steps <= last.steps)) return std::nullopt;
    const int64_t best = std::min(*own, is_known ? last.best_own_ns : INT64_MAX);
    const Last before = std::exchange(last, {connection, page.steps, now_ns, *own, best, *times,
                                             counters_of(pid, *own - best > best / 10)});
    wire::RankPace pace;
    pace.set_rank(rank);
    pace.set_steps(page.steps);
    pace.set_own_ns(*own);
    if (!is_known || now_ns <= before.now_ns) return pace;
    const auto steps = static_cast<double>(page.steps - before.steps);
    for (size_t phase = 0; phase < kPhases; ++phase)
        pace.add_phase_ns(static_cast<int64_t>(
            static_cast<double>(std::max<int64_t>((*times)[phase] - before.times[phase], 0)) / steps));
    const auto more = [](const std::optional<int64_t>& was, const std::optional<int64_t>& is) {
        return was && is && *is >= *was ? std::optional(static_cast<double>(*is - *was)) : std::nullopt;
    };
    const auto seconds = static_cast<double>(now_ns - before.now_ns) / 1e9;
    const PaceCounters &was = before.counters, &is = last.counters;
    if (const auto ns = more(was.core_waited_ns, is.core_waited_ns))
        pace.set_core_waited(*ns / 1e9 / seconds);
    const auto throttled = more(was.throttled_periods, is.throttled_periods);
    if (const auto periods = more(was.periods, is.periods); periods && *periods > 0 && throttled)
        pace.set_throttled(*throttled / *periods);
    if (const auto faults = more(was.major_faults, is.major_faults)) pace.set_major_faults(*faults / seconds);
    if (const auto segments = more(was.retransmissions, is.retransmissions))
        pace.set_retransmissions(*segments / seconds);
    // Another core or cache counts from elsewhere.
    if (const auto times_hot = more(was.core.overheated, is.core.overheated);
        times_hot && was.core.core == is.core.core)
        pace.set_overheated(*times_hot / seconds);
    if (is.core.clock_lost) pace.set_clock_lost(*is.core.clock_lost);
    if (const auto bytes = more(was.core.memory_bytes, is.core.memory_bytes);
        bytes && was.core.cache == is.core.cache)
        pace.set_memory_bytes(*bytes / seconds);
    return pace;
}

}  // namespace dp
