// SPDX-License-Identifier: Apache-2.0
//
// Which GPU a rank trains on, and which part of it if ranks share one as tiles. Pure;
// parallel/launch_context.cpp reads it from the environment, devices/cuda/sm_partition.cpp applies it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dp::trainer {

struct GpuShare {
    int gpu = 0;              // of the visible ones, modulo their number
    std::uint32_t parts = 1;  // tiles that the GPU is cut into
    std::uint32_t first = 0;  // of the rank's tiles on it, which are neighbours
    std::uint32_t count = 1;

    // Whether other ranks may use the same GPU.
    bool is_part() const { return count < parts; }
    bool operator==(const GpuShare&) const = default;
};

// From DP_TILE_LIST and DP_TILES_PER_DEVICE. If the tiles are on several GPUs, only those on the first one
// count: a rank trains on one. The whole GPU if the tiles are not adjacent or the variables are invalid.
GpuShare gpu_share(int gpu, std::string_view tile_list, std::uint32_t tiles_per_device);

// The number of streaming multiprocessors in each of `parts` equal parts of a GPU: a multiple of `alignment`.
// nullopt if that is less than `minimum`, so that the GPU cannot be divided.
std::optional<std::uint32_t> sms_of_a_part(std::uint32_t all, std::uint32_t parts, std::uint32_t minimum,
                                           std::uint32_t alignment);

}  // namespace dp::trainer
