// SPDX-License-Identifier: Apache-2.0
#include "doctor/cores.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/text.hpp"
#include "common/read_file.hpp"
#include "doctor/apart.hpp"
#include "tiles/sysfs.hpp"

namespace dp::doctor {
namespace {

using Clock = std::chrono::steady_clock;

// Larger than caches: half of it is read, half is written, in pieces that take less than a time slice.
constexpr size_t kCopied = size_t{128} << 20, kPiece = size_t{8} << 20;
constexpr std::chrono::seconds kCopyPatience{5};
constexpr int kCopies = 3;
// Of the fastest NUMA node's bandwidth, and of the fastest core's speed.
constexpr double kSlowNode = 0.5, kSlowCore = 0.5;

bool is_allowed(const cpu_set_t& allowed, uint32_t cpu) {
    return cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed);
}

// The median over the pieces of some copies on that CPU, in bytes per second: another program's time slice disturbs few of them, a
// neighbour that uses the memory disturbs all. Moves this thread there.
double copy_bandwidth(uint32_t cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return 0;
    std::vector<double> speeds;
    std::vector<char> memory(kCopied, 1);
    for (int i = 0; i < kCopies; ++i) {
        for (size_t at = 0; at < kCopied / 2; at += kPiece) {
            const auto begin = Clock::now();
            std::memcpy(memory.data() + at, memory.data() + kCopied / 2 + at, kPiece);
            // Nobody reads it: a compiler may leave the copy out.
            __asm__ volatile("" : : "r"(memory.data()) : "memory");
            const std::chrono::duration<double> took = Clock::now() - begin;
            speeds.push_back(2.0 * kPiece / took.count());
        }
    }
    const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
    std::ranges::nth_element(speeds, middle);
    return *middle;
}

// Small enough for the first cache; one multiplication takes some 10 to 100 us.
constexpr size_t kSide = 48;
using Matrix = std::array<std::array<float, kSide>, kSide>;
constexpr std::chrono::milliseconds kMultiplying{60};
constexpr int kAtATime = 10;

void multiply(const Matrix& a, const Matrix& b, Matrix& sum) {
    for (size_t i = 0; i < kSide; ++i)
        for (size_t k = 0; k < kSide; ++k)
            for (size_t j = 0; j < kSide; ++j) sum[i][j] += a[i][k] * b[k][j];
}

// The best of many short times on that CPU, in flop/s, so that other programs' turns do not count; 0 if it may not run there.
double multiplying_speed(uint32_t cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return 0;
    Matrix a, b, sum{};
    for (auto& row : a) row.fill(0.5F);
    for (auto& row : b) row.fill(0.25F);
    double best = 0;
    for (const auto end = Clock::now() + kMultiplying; Clock::now() < end;) {
        const auto begin = Clock::now();
        for (int i = 0; i < kAtATime; ++i) multiply(a, b, sum);
        __asm__ volatile("" : : "r"(sum.data()) : "memory");
        const std::chrono::duration<double> took = Clock::now() - begin;
        best = std::max(best, kAtATime * 2.0 * kSide * kSide * kSide / took.count());
    }
    return best;
}

void measure_cores(const cpu_set_t& allowed, CoreFacts& facts) {
    std::vector<double> speeds(CPU_SETSIZE);
    std::vector<std::thread> threads;
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (is_allowed(allowed, cpu))
            threads.emplace_back([cpu, &speed = speeds[cpu]] { speed = multiplying_speed(cpu); });
    for (auto& thread : threads) thread.join();
    std::erase(speeds, 0);
    if (speeds.empty()) return;
    facts.slowest_core = *std::ranges::min_element(speeds);
    facts.fastest_core = *std::ranges::max_element(speeds);
}

// The path of this process's cgroup with the CPU controller, and whether that is of version 2: the lines of /proc/self/cgroup are
// NUMBER:CONTROLLERS:PATH, with 0 and no controllers for version 2 (cgroups(7)).
std::string own_cgroup(const std::string& text, int& version) {
    std::string path;
    version = 0;
    for (const auto line : split(text, '\n')) {
        const auto fields = split(line, ':');
        if (fields.size() < 3) continue;
        const auto controllers = split(fields[1], ',');
        const bool is_v1 = std::ranges::find(controllers, "cpu") != controllers.end();
        if (!is_v1 && (fields[0] != "0" || version == 1)) continue;
        version = is_v1 ? 1 : 2;
        path = line.substr(static_cast<size_t>(fields[2].data() - line.data()));
    }
    return path;
}

// "model name	: AMD EPYC 7543 32-Core Processor"
std::string model_in(const std::string& text) {
    const size_t line = text.find("model name");
    const size_t colon = line == text.npos ? text.npos : text.find(": ", line);
    return colon == text.npos ? ""
                              : printable(text.substr(colon + 2, text.find('\n', colon) - colon - 2), 80);
}

// How often the allowed CPUs' cores have slowed down since the boot because of heat.
uint64_t throttle_count(const std::string& root, const cpu_set_t& allowed) {
    uint64_t sum = 0;
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (is_allowed(allowed, cpu))
            sum += parse_number<uint64_t>(
                       read_word(
                           fmt::format("{}/sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count",
                                       root, cpu))
                           .value_or(""))
                       .value_or(0);
    return sum;
}

uint64_t number_behind(const std::string& text, std::string_view key) {
    const auto value = value_behind(text, key);
    return value ? parse_number<uint64_t>(*value).value_or(0) : 0;
}

// The smallest quota of the cgroup and those around it.
void read_quota(const std::string& root, CoreFacts& facts) {
    std::string path =
        own_cgroup(read_text(root + "/proc/self/cgroup").value_or("").value_or(""), facts.cgroup_version);
    const std::string mounted = root + (facts.cgroup_version == 2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu");
    const auto text = [&](const char* file) {
        return read_text(mounted + path + file).value_or("").value_or("");
    };
    for (bool is_last = facts.cgroup_version == 0; !is_last; path.resize(is_last ? 0 : path.rfind('/'))) {
        if (path == "/") path.clear();
        std::optional<double> used, period;
        if (facts.cgroup_version == 2) {
            const std::string both = text("/cpu.max");
            const auto words = split(std::string_view(both).substr(0, both.find('\n')), ' ');
            if (words.size() == 2) {
                used = parse_number<uint32_t>(words[0]);
                period = parse_number<uint32_t>(words[1]);
            }
        } else {
            const auto number = [&](const char* file) {
                const std::string all = text(file);
                return parse_number<int64_t>(std::string_view(all).substr(0, all.find('\n')));
            };
            used = number("/cpu.cfs_quota_us");
            period = number("/cpu.cfs_period_us");
        }
        if (used && period && *used > 0 && *period > 0 && (!facts.quota || *used / *period < *facts.quota)) {
            facts.quota = *used / *period;
            facts.cgroup = path.empty() ? "/" : printable(path);
            const std::string stat = text("/cpu.stat");
            facts.throttled_seconds = static_cast<double>(number_behind(stat, "throttled_usec ")) / 1e6 +
                                      static_cast<double>(number_behind(stat, "throttled_time ")) / 1e9;
        }
        is_last = path.empty();
    }
}

Finding check_count(const CoreFacts& facts) {
    const std::string seen =
        fmt::format("{} of {} CPUs{}{}", facts.allowed, facts.online,
                    facts.has_smt.value_or(false) ? ", two hardware threads a core" : "",
                    facts.cgroup_version == 0 ? "" : fmt::format(", cgroup v{}", facts.cgroup_version));
    if (!facts.quota || *facts.quota >= facts.allowed) return ok("CPUs", seen);
    return warning(
        "CPUs",
        fmt::format(
            "{}, but cgroup {} allows the time of {:.3g}; it has been kept waiting for {:.3g} s so far", seen,
            facts.cgroup, *facts.quota, facts.throttled_seconds),
        "every thread stops when the quota of a period is used up: all ranks wait for those of this node",
        facts.cgroup_version == 2
            ? fmt::format("echo max > /sys/fs/cgroup{}/cpu.max, or whoever sets it (CPUQuota= of systemd)",
                          facts.cgroup)
            : fmt::format("echo -1 > /sys/fs/cgroup/cpu{}/cpu.cfs_quota_us, or whoever sets it",
                          facts.cgroup));
}

Finding check_frequency(const CoreFacts& facts) {
    if (facts.governors.empty())
        return ok("CPU frequency", "not governed here (a virtual machine, or the firmware does it)");
    const std::string seen = fmt::format("{} ({})", join(facts.governors, ", "), facts.frequency_driver);
    // With these two drivers powersave still goes up to the highest frequency.
    const bool has_own_powersave = facts.frequency_driver == "intel_pstate" ||
                                   facts.frequency_driver.starts_with("amd-pstate-epp") ||
                                   facts.frequency_driver.starts_with("amd_pstate_epp");
    if (!facts.governors.contains("powersave") || has_own_powersave) return ok("CPU frequency", seen);
    return warning("CPU frequency", seen, "powersave keeps these CPUs at their lowest frequency",
                   "cpupower frequency-set -g performance");
}

Finding check_heat(const CoreFacts& facts) {
    if (facts.slowed_by_heat == 0) return ok("heat", "no core slowed down while this ran");
    return warning("heat",
                   fmt::format("cores slowed down {} times while this ran because they were too hot",
                               facts.slowed_by_heat),
                   "one slow node makes every step slow", "check its fans and airflow; ipmitool sensor");
}

Finding check_speed(const CoreFacts& facts) {
    if (facts.fastest_core == 0) return ok("speed", "not measured");
    const std::string seen = fmt::format("{:.3g} Gflop/s on the slowest core, {:.3g} on the fastest",
                                         facts.slowest_core / 1e9, facts.fastest_core / 1e9);
    if (facts.slowest_core >= kSlowCore * facts.fastest_core) return ok("speed", seen);
    return warning("speed", seen,
                   "the rank on that core makes the others wait: it is throttled, or another program uses it",
                   "turbostat; top; dmesg | grep -i throttl");
}

Finding check_memory(const CoreFacts& facts) {
    std::vector<std::string> each;
    double best = 0;
    for (const double one : facts.memory_bandwidth) best = std::max(best, one);
    std::optional<size_t> slow;
    for (size_t node = 0; node < facts.memory_bandwidth.size(); ++node) {
        const double one = facts.memory_bandwidth[node];
        each.push_back(one == 0 ? fmt::format("node {}: not measured", node)
                                : fmt::format("node {}: {:.3g} GB/s", node, one / 1e9));
        if (one > 0 && one < kSlowNode * best) slow = node;
    }
    if (each.empty()) return ok("memory", "not measured");
    const std::string seen = join(each, ", ") + " (a copy, by one core)";
    if (!slow) return ok("memory", seen);
    return warning(
        "memory", seen,
        fmt::format("memory of NUMA node {} is slow: a DIMM is missing or has failed, or a neighbour uses it",
                    *slow),
        "dmidecode -t memory; edac-util -v; top");
}

}  // namespace

CoreFacts read_cores(const std::string& root, Depth depth) {
    CoreFacts facts;
    const auto word = [&](const std::string& path) { return read_word(root + path).value_or(""); };
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    facts.allowed = static_cast<uint32_t>(CPU_COUNT(&allowed));
    facts.online = static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    facts.model = model_in(read_file(root + "/proc/cpuinfo"));
    if (const std::string smt = word("/sys/devices/system/cpu/smt/active"); !smt.empty())
        facts.has_smt = smt == "1";
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!is_allowed(allowed, cpu)) continue;
        const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}", cpu);
        if (const std::string governor = word(folder + "/cpufreq/scaling_governor"); !governor.empty()) {
            facts.governors.insert(printable(governor, 20));
            facts.frequency_driver = printable(word(folder + "/cpufreq/scaling_driver"), 20);
        }
    }
    read_quota(root, facts);
    if (depth == Depth::quick) return facts;
    const uint64_t before = throttle_count(root, allowed);
    const auto nodes = list_numbered(folder_of_numa(root), "node").value_or(std::vector<uint32_t>());
    for (const uint32_t node : nodes) {
        const auto cpus = cpus_of_numa(root, node);
        const auto one = std::ranges::find_if(cpus, [&](uint32_t cpu) { return is_allowed(allowed, cpu); });
        facts.memory_bandwidth.resize(size_t{node} + 1);
        if (one == cpus.end()) continue;
        const auto said = apart([&] { return fmt::format("{:.0f}", copy_bandwidth(*one)); }, kCopyPatience);
        facts.memory_bandwidth[node] =
            static_cast<double>(said ? parse_number<uint64_t>(*said).value_or(0) : 0);
    }
    measure_cores(allowed, facts);
    facts.slowed_by_heat = throttle_count(root, allowed) - before;
    return facts;
}

Findings check_cores(const CoreFacts& facts) {
    return {check_count(facts), check_frequency(facts), check_speed(facts), check_heat(facts),
            check_memory(facts)};
}

}  // namespace dp::doctor
