// SPDX-License-Identifier: Apache-2.0
//
// How far the running kernel is, in barriers of all kernels' blocks so far, and in exchanges of each warp.
#pragma once

#include <cstdint>

namespace dp::cuda_emulator {

struct Progress {
    std::uint32_t launch = 0, block = 0, barriers = 0;  // the first two: at its beginning
    std::uint32_t exchanges[32] = {};
    unsigned thread = 0;  // of the block
};
extern Progress progress;

}  // namespace dp::cuda_emulator
