// SPDX-License-Identifier: Apache-2.0
//
// From a step's part of a node's accelerators to the tiles of each of its ranks there: pure. A tile is the
// smallest part of an accelerator that can be given to one rank: a SambaNova RDU tile, an Intel stack, a GPU
// or MIG instance. A node's tiles are numbered 0, 1, ... through all its devices.
#pragma once

#include "tiles/gres.hpp"

namespace dp {

// The most tiles of a node: a guard against typing errors.
inline constexpr uint32_t kMaxTiles = 4096;

using Tiles = std::vector<uint32_t>;  // ascending, none twice

// The layout of a node's tiles, as far as sharing needs it.
struct TileLayout {
    std::string gres;               // the units of which gres are tiles: "gpu", "rdu", "tile"
    uint32_t tiles_per_unit = 1;    // of that gres: index i stands for the tiles i*n ... i*n+n-1
    uint32_t tiles_per_device = 1;  // tiles that share one device; neighbours in number
    uint32_t tiles = 0;             // on the node
};

// The given tiles; fails if Slurm only counts that gres, shares its units or has given more than there are.
Try<Tiles> owned_tiles(const std::vector<GresUnits>& given, const TileLayout& layout);

// Each rank's tiles, by local rank: disjoint, from the owned ones, with as many ranks as possible within one
// device, lowest first. `per_rank` 0 divides them evenly.
Try<std::vector<Tiles>> share_tiles(const Tiles& owned, uint32_t tiles_per_device, uint32_t ranks,
                                    uint32_t per_rank);

// As a hexadecimal number, tile 0 the lowest bit: {12,13,14,15} -> "0xf000". As many digits as needed.
std::string tile_mask(const Tiles& tiles);

// "12-15,20" (compress_ranks) -> {12,13,14,15,20}; empty if the text is something else.
Tiles parse_tiles(std::string_view text);

}  // namespace dp
