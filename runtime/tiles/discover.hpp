// SPDX-License-Identifier: Apache-2.0
//
// A node's inventory: what the site's tiles.conf says of it, else what is found in the machine.
#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "tiles/inventory.hpp"

namespace dp {

// The inventory of the node that this runs on: what tiles.conf says of it, else what is found in /sys and
// /proc below `root` ("" but in tests). nullopt where there is neither. Reads files, and waits for nothing
// else.
Try<std::optional<TileInventory>> read_inventory(const std::string& tiles_conf, const std::string& node,
                                                 const std::string& root = "");
// Its two halves.
Try<std::optional<TileInventory>> written_inventory(const std::string& tiles_conf, const std::string& node);
Try<std::optional<TileInventory>> found_inventory(const std::string& root = "");

}  // namespace dp
