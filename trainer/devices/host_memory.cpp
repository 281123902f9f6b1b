// SPDX-License-Identifier: Apache-2.0
//
// Reads /proc/meminfo and the limits of control groups, version 1 and 2: see host_memory.hpp.
#include "trainer/devices/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// The number in a kernel file; nullopt for "max", and if there is no such file.
std::optional<std::int64_t> number_in(const fs::path& file) {
    std::ifstream in(file);
    std::int64_t number = 0;
    return in >> number ? std::optional(number) : std::nullopt;
}

// The part of a group's usage that the kernel could free: page cache that nobody needs at the moment.
std::int64_t reclaimable(const fs::path& stat_file) {
    std::ifstream in(stat_file);
    std::int64_t sum = 0, value = 0;
    for (std::string key; in >> key >> value;)
        if (key == "inactive_file" || key == "total_inactive_file") sum = std::max(sum, value);
    return sum;
}

std::optional<std::int64_t> available_of_machine(const fs::path& proc) {
    std::ifstream in(proc / "meminfo");
    std::int64_t kibibytes = 0;
    for (std::string word; in >> word;)
        if (word == "MemAvailable:" && in >> kibibytes) return kibibytes * 1024;
    return std::nullopt;
}

// The tightest limit of the group and its ancestors.
std::int64_t left_in(const fs::path& root, const fs::path& group, const char* limit, const char* usage) {
    std::int64_t left = std::numeric_limits<std::int64_t>::max();
    for (fs::path at = group.relative_path();; at = at.parent_path()) {
        const auto most = number_in(root / at / limit);
        const auto used = number_in(root / at / usage);
        if (most && used)
            left = std::min(
                left, std::max<std::int64_t>(*most - *used + reclaimable(root / at / "memory.stat"), 0));
        if (at.empty()) return left;
    }
}

}  // namespace

std::optional<std::int64_t> available_host_memory(const fs::path& proc, const fs::path& cgroups) {
    auto available = available_of_machine(proc);
    if (!available) return std::nullopt;
    // A line is "0::/the/group" (version 2) or "9:memory:/the/group" (version 1).
    std::ifstream groups(proc / "self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        const auto first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const fs::path group = line.substr(second + 1);
        if (controllers.empty())
            available = std::min(*available, left_in(cgroups, group, "memory.max", "memory.current"));
        else if (controllers == "memory")
            available = std::min(*available, left_in(cgroups / "memory", group, "memory.limit_in_bytes",
                                                     "memory.usage_in_bytes"));
    }
    return available;
}

}  // namespace dp::trainer
