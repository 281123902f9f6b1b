// SPDX-License-Identifier: Apache-2.0
//
// What /sys says of a core that may make its rank slow: heat, its clock, and what its neighbours do to the memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dp {

struct CoreState {
    int64_t core = -1;
    std::optional<int64_t> cache;       // its L3 cache
    std::optional<int64_t> overheated;  // how often it, or its package, was throttled since the boot
    std::optional<double> clock_lost;   // what its clock lacks now of its highest, 0 to 1
    std::optional<int64_t>
        memory_bytes;  // that this cache has moved since resctrl was mounted, for whichever core and group
    bool operator==(const CoreState&) const = default;
};

// `root`: the folder with /sys. The last of these is known where resctrl is mounted and the processor counts it (Linux'
// Documentation/filesystems/resctrl.rst). To ask for the clock, older kernels interrupt the core and wait for milliseconds: only where it
// is wanted, and from Linux 5.18 on.
CoreState read_core(int64_t core, bool with_clock, const std::string& root = "");

}  // namespace dp
