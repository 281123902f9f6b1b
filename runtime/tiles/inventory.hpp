// SPDX-License-Identifier: Apache-2.0
//
// A node's accelerators and the numbers of its tiles. conf.hpp reads it; vendor.hpp has what differs between
// vendors. Devices are numbered as Slurm's gres counts them, tiles through all devices.
#pragma once

#include <algorithm>

#include "tiles/shares.hpp"

namespace dp {

struct Vendor;  // vendor.hpp

struct TileDevice {
    std::string name = {};         // as its vendor calls it ("NVIDIA H200"); "" where unknown
    std::string file = {};         // its node in /dev; "" where unknown
    std::optional<uint32_t> numa;  // its NUMA node
    std::vector<uint32_t> cpus;    // near it; empty: those of its NUMA node

    bool operator==(const TileDevice&) const = default;
};

struct TileInventory {
    const Vendor* vendor = nullptr;
    TileLayout layout;
    std::vector<TileDevice> devices;  // layout.tiles / layout.tiles_per_device of them
    std::string source;               // for messages: "/etc/slurm/tiles.conf line 3", "found in /sys"

    // The devices of these tiles, ascending.
    std::vector<uint32_t> devices_of(const Tiles& tiles) const {
        std::vector<uint32_t> found;
        for (uint32_t tile : tiles) found.push_back(tile / layout.tiles_per_device);
        found.erase(std::unique(found.begin(), found.end()), found.end());
        return found;
    }
    // Whether it knows for any device what is near.
    bool says_where() const {
        return std::any_of(devices.begin(), devices.end(),
                           [](const TileDevice& device) { return device.numa || !device.cpus.empty(); });
    }
};

// The default place of tiles.conf. It need not exist.
inline constexpr const char* kTilesConf = "/etc/slurm/tiles.conf";

}  // namespace dp
