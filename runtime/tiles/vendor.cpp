// SPDX-License-Identifier: Apache-2.0
#include "tiles/vendor.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace dp {

std::string TileView::unit_name(uint32_t tile) const {
    const uint32_t unit = tile / inventory.layout.tiles_per_unit;
    for (const auto& [number, name] : unit_names)
        if (number == unit) return name;
    return std::to_string(unit);
}

std::string TileView::device_name(uint32_t tile) const {
    const TileLayout& layout = inventory.layout;
    if (layout.tiles_per_unit == layout.tiles_per_device) return unit_name(tile);
    return std::to_string(tile / layout.tiles_per_device);
}

uint32_t TileView::number_in_task(uint32_t tile) const {
    const uint32_t per_unit = inventory.layout.tiles_per_unit;
    const auto unit = parse_number<uint32_t>(unit_name(tile));
    return unit ? *unit * per_unit + tile % per_unit : tile;
}

VendorVariables visible_devices(const TileView& view, std::vector<std::string>& names) {
    VendorVariables out;
    for (uint32_t tile : view.visible) {
        const std::string name = view.device_name(tile);
        const auto there = std::find(names.begin(), names.end(), name);
        if (!view.own.empty() && tile == view.own.front())
            out.device = static_cast<uint32_t>(there - names.begin());
        if (there == names.end()) names.push_back(name);
    }
    return out;
}

Try<std::optional<TileInventory>> found_inventory(const std::string& root) {
    for (const Vendor* vendor : kVendors) {
        if (!vendor->detect) continue;
        auto found = DP_TRY(vendor->detect(root));
        if (!found) continue;
        found->vendor = vendor;
        found->source = "found in " + root + "/sys and " + root + "/proc";
        return found;
    }
    return std::nullopt;
}

std::optional<TileInventory> inventory_of_gpus(std::vector<TileDevice> devices, uint32_t tiles_per_device) {
    if (devices.empty()) return std::nullopt;
    TileInventory inventory;
    inventory.layout = {"gpu", tiles_per_device, tiles_per_device,
                        static_cast<uint32_t>(devices.size()) * tiles_per_device};
    inventory.devices = std::move(devices);
    return inventory;
}

}  // namespace dp
