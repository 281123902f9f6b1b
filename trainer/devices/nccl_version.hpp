// SPDX-License-Identifier: Apache-2.0
//
// Which NCCL the CUDA module runs with. Pure; open.cpp asks before it loads the module.
#pragma once

#include <optional>
#include <string>

namespace dp::trainer {

// The first that has all of ncclConfig_t that libdp-nccl sets, and non-blocking communicators that can be relied on.
inline constexpr int kOldestNccl = 21800;

// Why it is refused. `version`: as ncclGetVersion says it.
inline std::optional<std::string> old_nccl_text(int version) {
    if (version >= kOldestNccl) return std::nullopt;
    // Until 2.8 it was 1000 * major + 100 * minor + patch (nccl.h, NCCL_VERSION).
    const int major = version < 10000 ? version / 1000 : version / 10000,
              minor = version / 100 % (version < 10000 ? 10 : 100);
    return "NCCL " + std::to_string(major) + "." + std::to_string(minor) + "." +
           std::to_string(version % 100) +
           " is too old: the trainer needs 2.18 or newer; load a newer one, or add its folder to "
           "LD_LIBRARY_PATH";
}

}  // namespace dp::trainer
