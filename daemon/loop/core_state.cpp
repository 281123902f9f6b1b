// SPDX-License-Identifier: Apache-2.0
#include "loop/core_state.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/text.hpp"
#include "common/read_file.hpp"

namespace dp {
namespace {

std::optional<int64_t> number_in(const std::string& path) {
    const std::string text = read_file(path);
    return parse_number<int64_t>(std::string_view(text).substr(0, text.find('\n')));
}

}  // namespace

CoreState read_core(int64_t core, const std::string& root) {
    const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}/", root, core);
    CoreState state;
    state.core = core;
    const auto of_core = number_in(folder + "thermal_throttle/core_throttle_count");
    const auto of_package = number_in(folder + "thermal_throttle/package_throttle_count");
    if (of_core || of_package) state.overheated = of_core.value_or(0) + of_package.value_or(0);
    const auto now = number_in(folder + "cpufreq/scaling_cur_freq");
    const auto most = number_in(folder + "cpufreq/cpuinfo_max_freq");
    if (now && most && *now > 0 && *most > 0)
        state.clock_lost = 1 - std::min(1.0, static_cast<double>(*now) / static_cast<double>(*most));
    state.cache = number_in(folder + "cache/index3/id");
    if (state.cache)
        state.memory_bytes = number_in(
            fmt::format("{}/sys/fs/resctrl/mon_data/mon_L3_{:02}/mbm_total_bytes", root, *state.cache));
    return state;
}

}  // namespace dp
