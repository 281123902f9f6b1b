// SPDX-License-Identifier: Apache-2.0
//
// What differs between vendors of accelerators: which variables show a task its tiles, and how a node's
// devices are detected. A vendor is one file in vendors/ and its name in the list at the end.
#pragma once

#include <array>

#include "common/environment.hpp"
#include "tiles/inventory.hpp"

namespace dp {

// What a task will see. A unit is one of the gres that Slurm hands out. Everything outlives the view.
struct TileView {
    const TileInventory& inventory;
    const Tiles& own;  // the rank's
    const Tiles&
        visible;  // what the program may name, in the order of its numbers; the rank's own among them
    // Each rank's first tile, by local rank; empty if only the rank's own tiles are visible.
    const Tiles& firsts;
    // Slurm's number or name of each unit for this task (a device cgroup renumbers them): "0", "MIG-..."; a
    // unit that is missing is called by its number.
    const std::vector<std::pair<uint32_t, std::string>>& unit_names;
    const GetVariable& get;  // the task's environment until now

    std::string unit_name(uint32_t tile) const;
    // The name of a tile's device; its number if it is not a unit.
    std::string device_name(uint32_t tile) const;
    // The tile's number in the task's numbering of devices; its own if the unit's name is not a number.
    uint32_t number_in_task(uint32_t tile) const;
};

struct VendorVariables {
    std::vector<TaskVariable> variables;
    uint32_t device = 0;  // DP_TILE_DEVICE: by which number the program finds the first of its own tiles
};

struct Vendor {
    std::string_view name;          // in tiles.conf
    std::string_view default_gres;  // whose units Slurm hands out
    VendorVariables (*variables)(const TileView&);
    // This vendor's devices in the machine, nullopt if there are none; without vendor and source. nullptr:
    // they cannot be detected, only described.
    Try<std::optional<TileInventory>> (*detect)(const std::string& root);
    // The variable in which Slurm lists the units of gres gpu for a step and for a task; nullptr: none.
    const char* slurm_variable = nullptr;
};

extern const Vendor kSambanova, kIntel, kNvidia, kAmd;
inline constexpr std::array<const Vendor*, 4> kVendors = {&kSambanova, &kIntel, &kNvidia, &kAmd};

// What is detected in the machine, in /sys and /proc below `root`.
Try<std::optional<TileInventory>> found_inventory(const std::string& root = "");

// ---- for vendors' files ----

// The names of the visible tiles' devices, each once, and the position of the first own one among them.
VendorVariables visible_devices(const TileView& view, std::vector<std::string>& names);

// For detected devices, each a unit of gres gpu; nullopt if there are none.
std::optional<TileInventory> inventory_of_gpus(std::vector<TileDevice> devices,
                                               uint32_t tiles_per_device = 1);

}  // namespace dp
