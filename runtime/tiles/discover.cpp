// SPDX-License-Identifier: Apache-2.0
#include "tiles/discover.hpp"

#include "tiles/conf.hpp"
#include "tiles/sysfs.hpp"
#include "tiles/vendor.hpp"

namespace dp {

Try<std::optional<TileInventory>> written_inventory(const std::string& tiles_conf, const std::string& node) {
    auto text = read_text(tiles_conf, 4 << 20, "is longer than 4 MiB");
    if (!text)
        return fail(text.error().message +
                    "; give a file there as tiles.conf(5) describes it, that every user may read");
    if (!*text) return std::nullopt;
    return read_tiles_conf(**text, tiles_conf, node);
}

Try<std::optional<TileInventory>> found_inventory(const std::string& root) {
    const std::string source = "found in " + root + "/sys and " + root + "/proc";
    for (const Vendor* vendor : kVendors) {
        if (!vendor->detect) continue;
        auto found = DP_TRY(vendor->detect(root));
        if (!found) continue;
        found->vendor = vendor;
        found->source = source;
        return found;
    }
    return std::nullopt;
}

Try<std::optional<TileInventory>> read_inventory(const std::string& tiles_conf, const std::string& node,
                                                 const std::string& root) {
    auto written = written_inventory(tiles_conf, node);
    if (!written || *written) return written;
    return found_inventory(root);
}

}  // namespace dp
