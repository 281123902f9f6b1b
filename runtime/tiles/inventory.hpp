// SPDX-License-Identifier: Apache-2.0
//
// What accelerators a node has and how its tiles are numbered: from the site's tiles.conf or detected.
// Devices are numbered as Slurm's gres counts them, tiles through all devices.
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

    // Those that the tiles lie on, ascending.
    std::vector<uint32_t> devices_of(const Tiles& tiles) const;
    // Whether it says of any device what that is near.
    bool says_where() const;
};

// The inventory of the node that this runs on: what tiles.conf says of it, else what is found in /sys and
// /proc below `root` ("" but in tests). nullopt where there is neither. Reads files, and waits for nothing
// else.
Try<std::optional<TileInventory>> read_inventory(const std::string& tiles_conf, const std::string& node,
                                                 const std::string& root = "");
// Its two halves.
Try<std::optional<TileInventory>> written_inventory(const std::string& tiles_conf, const std::string& node);
Try<std::optional<TileInventory>> found_inventory(const std::string& root = "");

// Where tiles.conf is unless the site says another place. It need not be there.
inline constexpr const char* kTilesConf = "/etc/slurm/tiles.conf";

}  // namespace dp
