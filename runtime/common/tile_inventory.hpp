// SPDX-License-Identifier: Apache-2.0
//
// What accelerators a node has and how its tiles are numbered: from the site's tiles.conf or detected.
// Devices are numbered as Slurm's gres counts them, tiles through all devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/tile_shares.hpp"

namespace dp {

enum class Vendor { sambanova, intel, nvidia, amd };

struct TileDevice {
    std::string file;              // its node in /dev; "" where unknown
    std::optional<uint32_t> numa;  // its NUMA node
    std::vector<uint32_t> cpus;    // near it; empty: those of its NUMA node

    bool operator==(const TileDevice&) const = default;
};

struct TileInventory {
    Vendor vendor = Vendor::nvidia;
    TileLayout layout;
    std::vector<TileDevice> devices;  // layout.tiles / layout.tiles_per_device of them
    std::string source;               // for messages: "/etc/slurm/tiles.conf line 3"
};

}  // namespace dp
