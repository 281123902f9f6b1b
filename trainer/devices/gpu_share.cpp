// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/gpu_share.hpp"

#include <algorithm>
#include <vector>

#include "base/text.hpp"

namespace dp::trainer {

GpuShare gpu_share(int gpu, std::string_view tile_list, std::uint32_t tiles_per_device) {
    const GpuShare whole{gpu};
    std::vector<std::uint32_t> tiles;
    for (const std::string_view part : split(tile_list, ',')) {
        const auto tile = parse_number<std::uint32_t>(part);
        if (!tile) return whole;
        tiles.push_back(*tile);
    }
    if (tiles.empty() || tiles_per_device < 2) return whole;
    const std::uint32_t device = tiles.front() / tiles_per_device;
    GpuShare share{gpu, tiles_per_device, tiles.front() % tiles_per_device, 0};
    for (const std::uint32_t tile : tiles) {
        if (tile / tiles_per_device != device) break;
        if (tile % tiles_per_device != share.first + share.count) return whole;
        ++share.count;
    }
    return share;
}

std::optional<std::uint32_t> sms_of_a_part(std::uint32_t all, std::uint32_t parts, std::uint32_t minimum,
                                           std::uint32_t alignment) {
    const std::uint32_t step = std::max(alignment, 1u);
    const std::uint32_t sms = all / std::max(parts, 1u) / step * step;
    return sms < std::max(minimum, 1u) ? std::nullopt : std::optional(sms);
}

}  // namespace dp::trainer
