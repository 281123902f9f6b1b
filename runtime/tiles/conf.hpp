// SPDX-License-Identifier: Apache-2.0
//
// tiles.conf, in which a site describes its nodes' tiles if they cannot be detected or should differ. One
// line per kind of node, with words NAME=VALUE, which tiles.conf(5) explains; # begins a comment:
//
//   nodes=sn30-[01-02] vendor=sambanova gres=rdu devices=8 tiles-per-device=8 tiles-per-unit=64
//   nodes=dawn-[001-256] vendor=intel devices=4 tiles-per-device=2 numa=0,0,1,1
#pragma once

#include "tiles/inventory.hpp"

namespace dp {

// What a file says about one node; nullopt if it does not name that node. All lines are checked: a mistake in
// any is a failure. `path` is for messages.
Try<std::optional<TileInventory>> read_tiles_conf(std::string_view text, const std::string& path,
                                                  std::string_view node);

// The same from the file; nullopt also if there is none.
Try<std::optional<TileInventory>> written_inventory(const std::string& tiles_conf, const std::string& node);

// The inventory of this node: what tiles.conf says, else what is detected in /sys and /proc below `root` (""
// except in tests). nullopt if there is neither. Only reads files; never waits.
Try<std::optional<TileInventory>> read_inventory(const std::string& tiles_conf, const std::string& node,
                                                 const std::string& root = "");

}  // namespace dp
