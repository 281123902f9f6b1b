// SPDX-License-Identifier: Apache-2.0
//
// In the place of trainer/devices/cuda/most_blocks.cuh: so few that the threads of most tests stride.
#pragma once

#include <cstdint>

namespace dp::trainer::kernels {

inline constexpr std::int64_t kMaxBlocks = 2, kMaxBlocksInY = 2;

}  // namespace dp::trainer::kernels
