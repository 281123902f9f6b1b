// SPDX-License-Identifier: Apache-2.0
//
// What one check of `dpctl doctor` found. Each topic (kernel, network, ...) gathers its facts from the machine, and a pure function
// turns them into findings.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace dp::doctor {

// fault: jobs fail, or can be expected to. warning: they may fail or be slow, or their failures are harder to explain.
enum class Level { ok, warning, fault };

// How thoroughly a machine is examined. Quick: nothing is measured and no other program asked; some ms, unless a driver takes longer.
// Measured: the speed of cores, memory and disks, too.
enum class Depth { quick, measured, all };

struct Finding {
    std::string check;  // its name; stable, for machines
    Level level = Level::ok;
    std::string seen;
    std::string why;     // it matters; "" if ok
    std::string remedy;  // a command or a setting; "" if ok

    bool operator==(const Finding&) const = default;
};

using Findings = std::vector<Finding>;

// The findings about one part of the machine, and its name.
struct Topic {
    std::string name;
    Findings findings;
};

inline Finding ok(std::string check, std::string seen) {
    return {std::move(check), Level::ok, std::move(seen), "", ""};
}
inline Finding warning(std::string check, std::string seen, std::string why, std::string remedy) {
    return {std::move(check), Level::warning, std::move(seen), std::move(why), std::move(remedy)};
}
inline Finding fault(std::string check, std::string seen, std::string why, std::string remedy) {
    return {std::move(check), Level::fault, std::move(seen), std::move(why), std::move(remedy)};
}

// "64 KiB", "1.5 GiB".
inline std::string size_in_words(uint64_t bytes) {
    constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    auto value = static_cast<double>(bytes);
    for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
    return unit == 0 || value >= 100 ? fmt::format("{:.0f} {}", value, kUnits[unit])
                                     : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

}  // namespace dp::doctor
