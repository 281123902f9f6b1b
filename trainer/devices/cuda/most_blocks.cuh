// SPDX-License-Identifier: Apache-2.0
//
// How many blocks a grid has at most: by blocks_for() (launching.cuh), and in y. More gain nothing: each thread then strides by the size of the grid.
// The tests' emulated GPU replaces this file, so that threads stride in small tensors, too (tests/unit/trainer/cuda_emulator).
#pragma once

#include <cstdint>

namespace dp::trainer::kernels {

inline constexpr std::int64_t kMaxBlocks = 4096;
inline constexpr std::int64_t kMaxBlocksInY = 65535;  // more than that CUDA does not take

}  // namespace dp::trainer::kernels
