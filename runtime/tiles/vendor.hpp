// SPDX-License-Identifier: Apache-2.0
//
// What differs from one maker of accelerators to the next: which variables show a task its tiles, and how a
// node's devices are found. A vendor is one file in vendors/ and its name in the list at the end.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "common/environment.hpp"
#include "common/task_variable.hpp"
#include "tiles/inventory.hpp"

namespace dp {

// What a task is to see. "Unit" is one of the gres that Slurm hands out. Everything outlives the view.
struct TileView {
    const TileInventory& inventory;
    const Tiles& own;  // the rank's
    const Tiles&
        visible;  // what the program may name, in the order of its numbers; the rank's own among them
    // Of the node's ranks, each the first tile, by local rank; none where the rank's own alone are visible.
    const Tiles& firsts;
    // How Slurm numbers or names each unit for this task (a device cgroup renumbers them): "0", "MIG-..."; a
    // unit that is not in it is called by its number.
    const std::vector<std::pair<uint32_t, std::string>>& unit_names;
    const GetVariable& get;  // the task's environment until now

    std::string unit_name(uint32_t tile) const;
    // Of the device that a tile lies on; its number where it is no unit.
    std::string device_name(uint32_t tile) const;
    // Tiles as one after the other in the task's own numbering of devices, tiles_per_device each; their own
    // number where a unit's name is none.
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
    // What of this vendor is in the machine, nullopt where nothing; without vendor and source. nullptr: its
    // devices cannot be found, only written down.
    Try<std::optional<TileInventory>> (*detect)(const std::string& root);
    // In which Slurm lists what it calls the units of gres gpu, for a step and for a task; nullptr: in none.
    const char* slurm_variable = nullptr;
};

extern const Vendor kSambanova, kIntel, kNvidia, kAmd;
inline constexpr std::array<const Vendor*, 4> kVendors = {&kSambanova, &kIntel, &kNvidia, &kAmd};

// ---- for vendors' files ----

std::string join(const std::vector<std::string>& words, char separator = ',');

// The names of the visible tiles' devices, each once; the position of the first own one among them.
VendorVariables visible_devices(const TileView& view, std::vector<std::string>& names);

// Of devices that were found, each a unit of gres gpu; nullopt where there is none.
std::optional<TileInventory> inventory_of_gpus(std::vector<TileDevice> devices,
                                               uint32_t tiles_per_device = 1);

}  // namespace dp
