// SPDX-License-Identifier: Apache-2.0
//
// A node's accelerators and the numbers of its tiles: from the site's tiles.conf or detected. Devices are
// numbered as Slurm's gres counts them, tiles through all devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
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
    std::vector<uint32_t> devices_of(const Tiles& tiles) const;
    // Whether it knows for any device what is near.
    bool says_where() const;
};

// The inventory of this node: what tiles.conf says, else what is detected in /sys and /proc below `root` (""
// except in tests). nullopt if there is neither. Only reads files; never waits.
Try<std::optional<TileInventory>> read_inventory(const std::string& tiles_conf, const std::string& node,
                                                 const std::string& root = "");
// Its two halves.
Try<std::optional<TileInventory>> written_inventory(const std::string& tiles_conf, const std::string& node);
Try<std::optional<TileInventory>> found_inventory(const std::string& root = "");

// The default place of tiles.conf. It need not exist.
inline constexpr const char* kTilesConf = "/etc/slurm/tiles.conf";

}  // namespace dp
