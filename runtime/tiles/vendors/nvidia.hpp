// SPDX-License-Identifier: Apache-2.0
//
// The names that NVIDIA's driver uses, also for callers that ask NVIDIA's library (dpctl).
#pragma once

#include <cstdint>

#include "base/failure.hpp"

namespace dp {

struct MigInstance {
    uint32_t gpu = 0;  // its minor number: that of /dev/nvidia0
    uint32_t gi = 0;   // GPU instance
    uint32_t ci = 0;   // compute instance
};

// The instance's file in /dev, as in an inventory; `root` is the folder with /proc, which names it.
Try<std::string> mig_file(const std::string& root, const MigInstance& instance);

}  // namespace dp
