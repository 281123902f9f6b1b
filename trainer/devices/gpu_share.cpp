// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/gpu_share.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace dp::trainer {
namespace {

// "4,5,6"; empty if it is anything else.
std::vector<std::uint32_t> numbers_in(std::string_view list) {
    std::vector<std::uint32_t> numbers;
    for (const std::string_view part : split(list, ',')) {
        const auto number = parse_number<std::uint32_t>(part);
        if (!number) return {};
        numbers.push_back(*number);
    }
    return numbers;
}

}  // namespace

GpuShare gpu_share(int gpu, std::string_view tile_list, std::uint32_t tiles_per_device) {
    GpuShare whole;
    whole.gpu = gpu;
    const auto tiles = numbers_in(tile_list);
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
    if (sms < std::max(minimum, 1u)) return std::nullopt;
    return sms;
}

}  // namespace dp::trainer
