// SPDX-License-Identifier: Apache-2.0
//
// tiles.conf, in which a site describes its nodes' tiles if they cannot be detected or should differ. One
// line per kind of node, with words NAME=VALUE; # begins a comment:
//
//   nodes=sn30-[01-02] vendor=sambanova gres=rdu devices=8 tiles-per-device=8 tiles-per-unit=64
//   nodes=dawn-[001-256] vendor=intel devices=4 tiles-per-device=2 numa=0,0,1,1
//
//   nodes             the node list; a node stands in one line at most
//   vendor            sambanova, intel, nvidia or amd: whose variables the tasks get
//   devices           how many accelerators one node has
//   tiles-per-device  1 where it is left out
//   gres              whose units Slurm gives to jobs; left out: rdu for sambanova, else gpu
//   tiles-per-unit    tiles that one unit of that gres stands for; left out: all of a device, and 1 for a
//                     gres that is called tile or rdu_tile
//   numa              the NUMA node of each device, in their order
//   cpus              the CPUs near each device, as lists with a slash between them (0-15/16-31); left out:
//                     those of its NUMA node
//   files             the devices' nodes in /dev, in their order, with brackets as in node lists:
//                     /dev/dri/renderD[128-131]
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
