// SPDX-License-Identifier: Apache-2.0
//
// `dpctl tiles`: a node's accelerators and how their tiles are numbered, in words and for machines.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tiles/inventory.hpp"

namespace dp {

struct TilesOptions {
    std::string conf = kTilesConf;
    std::string node;  // "": this one
    bool json = false;
    // But in tests these are the machine's own.
    std::string root = {};
    std::string nvml = "libnvidia-ml.so.1";
    std::string scontrol = "scontrol";
};

// → exit code: 1 where nothing is known of the node, 2 where tiles.conf has a mistake.
int show_tiles(const TilesOptions& options);

// How the inventory and Slurm's gres of the node ("gpu:4,rdu:8") disagree, and what to do; nullopt
// if they agree.
std::optional<std::string> disagreement(const TileInventory& inventory, std::string_view node_gres);

// `uuids` are those of the devices, in their order, "" where one is not known.
std::string tiles_text(const std::string& node, const TileInventory& inventory,
                       const std::vector<std::string>& uuids);
// For machines: dpctl(1) tells the keys.
std::string tiles_json(const std::string& node, const TileInventory& inventory,
                       const std::vector<std::string>& uuids);

}  // namespace dp
