// SPDX-License-Identifier: Apache-2.0
//
// How NVIDIA's driver names what it has, for those that ask NVIDIA's library as well (dpctl).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace dp {

struct MigInstance {
    uint32_t gpu = 0;  // its minor number: that of /dev/nvidia0
    uint32_t gi = 0;   // GPU instance
    uint32_t ci = 0;   // compute instance
};

// The instance's file in /dev, which an inventory has; below `root` lies the /proc that says it.
Try<std::string> mig_file(const std::string& root, const MigInstance& instance);

}  // namespace dp
