// SPDX-License-Identifier: Apache-2.0
#include "loop/core_state.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "common/read_file.hpp"
#include "tiles/sysfs.hpp"

namespace dp {
namespace {

std::optional<int64_t> number_in(const std::string& path) {
    const std::string text = read_file(path);
    return parse_number<int64_t>(std::string_view(text).substr(0, text.find('\n')));
}

bool has_cheap_clock() {
    utsname kernel{};
    unsigned major = 0, minor = 0;
    return uname(&kernel) == 0 && std::sscanf(kernel.release, "%u.%u", &major, &minor) == 2 &&
           std::pair(major, minor) >= std::pair(5U, 18U);
}

std::optional<double> clock_lost_by(const std::string& folder) {
    const auto now = number_in(folder + "scaling_cur_freq");
    const auto most = number_in(folder + "cpuinfo_max_freq");
    if (!now || !most || *now <= 0 || *most <= 0) return std::nullopt;
    return 1 - std::min(1.0, static_cast<double>(*now) / static_cast<double>(*most));
}

// Of the default group with the monitored groups in it, and of each group beside it.
std::optional<int64_t> memory_bytes_of(int64_t cache, const std::string& resctrl) {
    const std::string two_digits = (cache < 10 ? "0" : "") + std::to_string(cache);
    const std::string file = "/mon_data/mon_L3_" + two_digits + "/mbm_total_bytes";
    auto bytes = number_in(resctrl + file);
    if (!bytes) return std::nullopt;
    for (const auto& group : list_folder(resctrl).value_or(std::vector<std::string>()))
        *bytes += number_in(resctrl + "/" + group + file).value_or(0);  // what is no group has no such file
    return bytes;
}

}  // namespace

CoreState read_core(int64_t core, bool with_clock, const std::string& root) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/";
    CoreState state;
    state.core = core;
    const auto of_core = number_in(folder + "thermal_throttle/core_throttle_count");
    const auto of_package = number_in(folder + "thermal_throttle/package_throttle_count");
    if (of_core || of_package) state.overheated = of_core.value_or(0) + of_package.value_or(0);
    if (with_clock && has_cheap_clock()) state.clock_lost = clock_lost_by(folder + "cpufreq/");
    state.cache = number_in(folder + "cache/index3/id");
    if (state.cache) state.memory_bytes = memory_bytes_of(*state.cache, root + "/sys/fs/resctrl");
    return state;
}

}  // namespace dp
