// SPDX-License-Identifier: Apache-2.0
#include "tiles/inventory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/errno_text.hpp"
#include "common/fd.hpp"
#include "tiles/conf.hpp"
#include "tiles/vendor.hpp"

namespace dp {
namespace {

// nullopt where there is no such file.
Try<std::optional<std::string>> read_text(const std::string& path) {
    constexpr size_t kLongest = 4 << 20;
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file && errno == ENOENT) return std::nullopt;
    if (!file) return fail("cannot read " + path + ": " + errno_text(errno));
    std::string text;
    for (char part[4096];;) {
        const ssize_t size = read(file.get(), part, sizeof part);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) return fail("cannot read " + path + ": " + errno_text(errno));
        if (size == 0) return text;
        text.append(part, static_cast<size_t>(size));
        if (text.size() > kLongest) return fail(path + " is longer than 4 MiB: it is no tiles.conf");
    }
}

}  // namespace

std::vector<uint32_t> TileInventory::devices_of(const Tiles& tiles) const {
    std::vector<uint32_t> found;
    for (uint32_t tile : tiles) {
        const uint32_t device = tile / layout.tiles_per_device;
        if (found.empty() || found.back() != device) found.push_back(device);
    }
    return found;
}

Try<std::optional<TileInventory>> read_inventory(const std::string& tiles_conf, const std::string& node,
                                                 const std::string& root) {
    auto text = read_text(tiles_conf);
    if (!text) return tl::make_unexpected(text.error());
    if (*text) {
        auto written = read_tiles_conf(**text, tiles_conf, node);
        if (!written || *written) return written;
    }
    for (const Vendor* vendor : kVendors) {
        if (!vendor->detect) continue;
        auto found = vendor->detect(root);
        if (!found) return found;
        if (!*found) continue;
        (*found)->vendor = vendor;
        (*found)->source = "found in " + root + "/sys and " + root + "/proc";
        return found;
    }
    return std::nullopt;
}

}  // namespace dp
