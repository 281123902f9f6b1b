// SPDX-License-Identifier: Apache-2.0
#include "loop/usage.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <fstream>
#include <string_view>

#include "base/text.hpp"
#include "common/phase_page.hpp"

namespace dp {
namespace {

std::string of_process(pid_t pid, const std::string& file) {
    return "/proc/" + std::to_string(pid) + "/" + file;
}

// "" if it is not a link, or not readable for us.
std::string target_of(const std::string& link) {
    std::array<char, 4096> target;
    const ssize_t n = readlink(link.c_str(), target.data(), target.size());
    return {target.data(), n > 0 ? static_cast<size_t>(n) : 0};
}

constexpr std::string_view kDeleted = " (deleted)";

}  // namespace

Fd open_phase_page(pid_t pid, int32_t fd) {
    if (pid <= 0 || fd < 0) return {};
    const std::string path = of_process(pid, "fd/" + std::to_string(fd));
    if (target_of(path) != std::string("/memfd:") + kPhasePageName + std::string(kDeleted)) return {};
    Fd page(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    struct stat found {};
    if (!page || fstat(page.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
        found.st_size != static_cast<off_t>(kPhasePageBytes))
        return {};
    return page;
}

std::string command_of(pid_t pid) {
    std::string program = target_of(of_process(pid, "exe"));
    if (program.ends_with(kDeleted)) program.resize(program.size() - kDeleted.size());
    if (const size_t slash = program.rfind('/'); slash != std::string::npos) program.erase(0, slash + 1);
    if (program.empty()) {
        std::ifstream comm(of_process(pid, "comm"));
        std::getline(comm, program);
    }
    return printable(program, kMaxCommand);
}

std::optional<int64_t> cpu_ns_of(pid_t pid) {
    clockid_t clock{};
    timespec worked{};
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &worked) != 0) return std::nullopt;
    return int64_t{worked.tv_sec} * 1'000'000'000 + worked.tv_nsec;
}

void UsageReader::open(ConnectionId connection, pid_t pid, int32_t fd) {
    pages_.erase(connection);
    if (Fd page = open_phase_page(pid, fd)) pages_.emplace(connection, std::move(page));
}

void UsageReader::read(wire::NodeUsage::Rank& rank, pid_t pid, std::optional<ConnectionId> connection,
                       int64_t now_ns) const {
    if (pid > 0) {
        rank.set_pid(pid);
        rank.set_command(command_of(pid));
        if (const auto cpu_ns = cpu_ns_of(pid)) rank.set_cpu_ns(*cpu_ns);
    }
    const auto read = connection ? page(*connection) : std::nullopt;
    const auto times = read ? phase_times(*read, now_ns) : std::nullopt;
    if (!times) return;
    for (const int64_t ns : *times) rank.add_phase_ns(ns);
    if (const auto own = own_time_of_step(*read)) rank.set_own_step_ns(*own);
}

std::optional<PhasePage> UsageReader::page(ConnectionId connection) const {
    const auto page = pages_.find(connection);
    return page == pages_.end() ? std::nullopt : read_phase_page(page->second.get());
}

}  // namespace dp
