// SPDX-License-Identifier: Apache-2.0
//
// SambaNova's RDUs. SF_RNT_TILE_AFFINITY is a hexadecimal mask of the tiles of all the node's RDUs.
#include "tiles/vendor.hpp"

namespace dp {
namespace {

VendorVariables variables(const TileView& view) {
    VendorVariables out;
    out.variables = {{"SF_RNT_TILE_AFFINITY", tile_mask(view.own)}};
    if (!view.own.empty()) out.device = view.own.front() / view.inventory.layout.tiles_per_device;
    return out;
}

}  // namespace

const Vendor kSambanova = {"sambanova", "rdu", variables, nullptr};

}  // namespace dp
