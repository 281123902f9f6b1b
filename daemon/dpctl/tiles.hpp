// SPDX-License-Identifier: Apache-2.0
//
// `dpctl tiles`: its texts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tiles/inventory.hpp"

namespace dp {

// How the inventory and Slurm's gres of the node ("gpu:4,rdu:8") disagree, and what to do.
std::optional<std::string> disagreement(const TileInventory& inventory, std::string_view node_gres);

// `uuids` are the devices', in order, "" if unknown.
std::string tiles_text(const std::string& node, const TileInventory& inventory,
                       const std::vector<std::string>& uuids);
// As JSON: dpctl(1) documents the keys.
std::string tiles_json(const std::string& node, const TileInventory& inventory,
                       const std::vector<std::string>& uuids);

}  // namespace dp
