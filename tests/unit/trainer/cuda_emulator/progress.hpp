// SPDX-License-Identifier: Apache-2.0
//
// How far the running block is: in blocks of all kernels that were begun before it and, as a fraction of these, its own barriers; and
// in exchanges of each warp. Blocks that are there at once have different times.
#pragma once

#include <cstdint>

namespace dp::cuda_emulator {

constexpr std::uint64_t kTimesOfBlock = std::uint64_t{1} << 24;

struct Progress {
    std::uint64_t launch = 0, block = 0, barriers = 0;  // the first two: at its beginning
    std::uint32_t exchanges[32] = {};
    unsigned thread = 0;  // of the block
};
extern Progress progress;

}  // namespace dp::cuda_emulator
