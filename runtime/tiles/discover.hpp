// SPDX-License-Identifier: Apache-2.0
//
// Finds a node's inventory: in the site's tiles.conf, else in the machine.
#pragma once

#include <optional>
#include <string>

#include "base/failure.hpp"
#include "tiles/inventory.hpp"

namespace dp {

// The inventory of this node: what tiles.conf says, else what is detected in /sys and /proc below `root` (""
// except in tests). nullopt if there is neither. Only reads files; never waits.
Try<std::optional<TileInventory>> read_inventory(const std::string& tiles_conf, const std::string& node,
                                                 const std::string& root = "");
// Its two halves.
Try<std::optional<TileInventory>> written_inventory(const std::string& tiles_conf, const std::string& node);
Try<std::optional<TileInventory>> found_inventory(const std::string& root = "");

}  // namespace dp
