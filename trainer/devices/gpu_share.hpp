// SPDX-License-Identifier: Apache-2.0
//
// Which GPU a rank trains on, and which part of it where ranks share one as tiles. Pure; read from the
// environment by parallel/surroundings.cpp, made true by devices/cuda/sm_partition.cpp.
#ifndef TRAINER_DEVICES_GPU_SHARE_HPP
#define TRAINER_DEVICES_GPU_SHARE_HPP

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace dp::trainer {

struct GpuShare {
    int gpu = 0;              // of the visible ones, modulo their number
    std::uint32_t parts = 1;  // tiles that the GPU is cut into
    std::uint32_t first = 0;  // of the rank's tiles on it, which are neighbours
    std::uint32_t count = 1;

    // Other ranks may work on the same GPU.
    bool is_part() const { return count < parts; }
    bool operator==(const GpuShare&) const = default;
};

// From DP_TILE_LIST and DP_TILES_PER_DEVICE. Of tiles on several GPUs those on the first one count: a rank
// trains on one. The whole GPU where the tiles are no neighbours or the words say nothing.
GpuShare gpu_share(int gpu, std::string_view tile_list, std::uint32_t tiles_per_device);

// How many streaming multiprocessors each of `parts` equal parts of a GPU gets: a multiple of `alignment`.
// nullopt where that is less than `minimum`, and the GPU cannot be cut so.
std::optional<std::uint32_t> sms_of_a_part(std::uint32_t all, std::uint32_t parts, std::uint32_t minimum,
                                           std::uint32_t alignment);

}  // namespace dp::trainer

#endif
