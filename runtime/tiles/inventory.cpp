// SPDX-License-Identifier: Apache-2.0
#include "tiles/inventory.hpp"

#include <algorithm>

namespace dp {

std::vector<uint32_t> TileInventory::devices_of(const Tiles& tiles) const {
    std::vector<uint32_t> found;
    for (uint32_t tile : tiles) {
        const uint32_t device = tile / layout.tiles_per_device;
        if (found.empty() || found.back() != device) found.push_back(device);
    }
    return found;
}

bool TileInventory::says_where() const {
    return std::any_of(devices.begin(), devices.end(),
                       [](const TileDevice& device) { return device.numa || !device.cpus.empty(); });
}

}  // namespace dp
