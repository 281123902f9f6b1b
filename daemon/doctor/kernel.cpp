// SPDX-License-Identifier: Apache-2.0
#include "doctor/kernel.hpp"

#include <sys/timex.h>
#include <unistd.h>

#include "base/text.hpp"
#include "tiles/sysfs.hpp"

namespace dp::doctor {
namespace {

constexpr rlim_t kFewFiles = 1024, kFewProcesses = 1024;
constexpr int kFewEphemeralPorts = 8192;

// "always [madvise] never" → "madvise".
std::string chosen(std::string_view text) {
    const size_t begin = text.find('['), end = text.find(']');
    return begin == text.npos || end == text.npos ? "" : std::string(text.substr(begin + 1, end - begin - 1));
}

std::string in_words(rlim_t limit) {
    return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

Finding check_locked_memory(const KernelFacts& facts) {
    const rlim_t limit = facts.locked_memory.rlim_cur;
    if (limit == RLIM_INFINITY) return ok("locked memory", "unlimited");
    const std::string seen = size_in_words(limit) + " may be locked";
    if (facts.is_root) return ok("locked memory", seen + "; root may lock more");
    if (!facts.has_rdma) return ok("locked memory", seen + "; no RDMA adapter needs more");
    return fault("locked memory", seen,
                 "an RDMA adapter needs locked memory: NCCL and MPI fail with \"Cannot allocate memory\" "
                 "when they register theirs",
                 "LimitMEMLOCK=infinity in slurmd's unit (systemctl edit slurmd), and "
                 "PropagateResourceLimitsExcept=MEMLOCK in "
                 "slurm.conf");
}

Finding check_open_files(const KernelFacts& facts) {
    const auto [soft, hard] = facts.open_files;
    const std::string seen = in_words(soft) + (hard == soft ? "" : ", may be raised to " + in_words(hard));
    if (soft >= kFewFiles) return ok("open files", seen);
    return warning("open files", seen,
                   "data loaders' workers and connections between many ranks need some thousand: \"Too many "
                   "open files\"",
                   hard >= 4 * kFewFiles ? "ulimit -n 65536 in the job script"
                                         : "LimitNOFILE=1048576 in slurmd's unit (systemctl edit slurmd), "
                                           "and a limit of the login node that is as high");
}

Finding check_processes(const KernelFacts& facts) {
    const rlim_t limit = facts.processes.rlim_cur;
    if (facts.is_root || limit >= kFewProcesses)
        return ok("processes", facts.is_root ? "unlimited for root" : in_words(limit));
    return warning("processes", in_words(limit) + " for all of the user's processes and threads on this node",
                   "each rank has some dozen threads, and so has each worker of a data loader: \"Resource "
                   "temporarily unavailable\"",
                   "LimitNPROC=infinity in slurmd's unit (systemctl edit slurmd); ulimit -u unlimited on the "
                   "login node");
}

Finding check_core_files(const KernelFacts& facts) {
    const rlim_t limit = facts.core_size.rlim_cur;
    if (limit == 0) return ok("core files", "none are written");
    const std::string size = limit == RLIM_INFINITY ? "unlimited" : "up to " + size_in_words(limit);
    const std::string seen = size + ", to " + printable(facts.core_pattern, 80);
    if (facts.core_pattern.starts_with('|') || facts.core_pattern.starts_with('/'))
        return ok("core files", seen);
    return warning("core files", seen,
                   "each rank that crashes writes all its memory into its working directory before it is "
                   "seen to be dead",
                   "ulimit -c 0 in the job script, or sysctl kernel.core_pattern=/var/tmp/core.%h.%p");
}

Finding check_ptrace(const KernelFacts& facts) {
    if (facts.ptrace_scope.value_or(0) == 0)
        return ok("ptrace", facts.ptrace_scope ? "kernel.yama.ptrace_scope=0" : "not restricted");
    const char* const why =
        *facts.ptrace_scope == 1
            ? "dpctl stacks and --dp-hang-timeout can read what a task executes, and programs with libdp, "
              "but "
              "not others that a task starts, such as the Python of a shell script without exec"
        : *facts.ptrace_scope == 2 ? "dpctl stacks and --dp-hang-timeout can read a rank's calls only as root"
                                   : "dpctl stacks and --dp-hang-timeout cannot read a rank's calls";
    return warning("ptrace", fmt::format("kernel.yama.ptrace_scope={}", *facts.ptrace_scope), why,
                   *facts.ptrace_scope < 3
                       ? "sysctl kernel.yama.ptrace_scope=0"
                       : "kernel.yama.ptrace_scope=0 in /etc/sysctl.d, and a reboot: 3 cannot be undone");
}

Finding check_ephemeral_ports(const KernelFacts& facts) {
    const auto [first, last] = facts.ephemeral;
    const std::string seen = fmt::format("{} to {}", first, last);
    if (first == 0) return ok("ephemeral ports", "not known");
    const std::string remedy = fmt::format("sysctl net.ipv4.ip_local_port_range='{} 60999'", kLastPort + 1);
    if (last - first < kFewEphemeralPorts)
        return warning("ephemeral ports", seen,
                       "every connection between ranks needs one: large worlds fail with \"Cannot assign "
                       "requested address\"",
                       remedy);
    if (first <= kLastPort)
        return warning("ephemeral ports", seen,
                       fmt::format("any program's connection may hold a port of {} to {}, from which "
                                   "MASTER_PORT comes where Slurm "
                                   "reserves none",
                                   kFirstPort, kLastPort),
                       remedy);
    return ok("ephemeral ports", seen);
}

Finding check_huge_pages(const KernelFacts& facts) {
    if (facts.huge_pages.empty()) return ok("huge pages", "the kernel has none");
    const std::string seen = facts.huge_pages + ", defrag " + facts.huge_pages_defrag;
    if (facts.huge_pages == "never" || facts.huge_pages_defrag != "always") return ok("huge pages", seen);
    return warning(
        "huge pages", seen,
        "every page fault may wait while the kernel compacts memory: one rank is slow, then another",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag");
}

Finding check_clock(const KernelFacts& facts) {
    if (!facts.is_clock_synchronized) return ok("clock", "not known whether it is synchronized");
    if (*facts.is_clock_synchronized) return ok("clock", "synchronized");
    return warning(
        "clock", "the kernel says that nothing synchronizes it",
        "munge refuses credentials of a node whose clock is minutes off, and logs of several nodes cannot be "
        "compared",
        "systemctl enable --now chronyd (or systemd-timesyncd); chronyc tracking shows whether it works, and "
        "chrony.conf needs rtcsync");
}

}  // namespace

KernelFacts read_kernel(const std::string& root) {
    KernelFacts facts;
    getrlimit(RLIMIT_MEMLOCK, &facts.locked_memory);
    getrlimit(RLIMIT_NOFILE, &facts.open_files);
    getrlimit(RLIMIT_NPROC, &facts.processes);
    getrlimit(RLIMIT_CORE, &facts.core_size);
    facts.is_root = geteuid() == 0;
    const auto word = [&](const char* path) { return read_word(root + path).value_or(""); };
    facts.has_rdma =
        !list_folder(root + "/sys/class/infiniband").value_or(std::vector<std::string>()).empty();
    facts.core_pattern = word("/proc/sys/kernel/core_pattern");
    facts.ptrace_scope = parse_number<int>(word("/proc/sys/kernel/yama/ptrace_scope"));
    facts.huge_pages = chosen(word("/sys/kernel/mm/transparent_hugepage/enabled"));
    facts.huge_pages_defrag = chosen(word("/sys/kernel/mm/transparent_hugepage/defrag"));
    facts.ephemeral = read_ephemeral_range();
    timex clock{};
    if (const int state = adjtimex(&clock); state >= 0)
        facts.is_clock_synchronized = state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
    return facts;
}

Findings check_kernel(const KernelFacts& facts) {
    return {check_locked_memory(facts), check_open_files(facts), check_processes(facts),
            check_core_files(facts),    check_ptrace(facts),     check_ephemeral_ports(facts),
            check_huge_pages(facts),    check_clock(facts)};
}

}  // namespace dp::doctor
