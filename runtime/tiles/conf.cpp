// SPDX-License-Identifier: Apache-2.0
#include "tiles/conf.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "tiles/sysfs.hpp"
#include "tiles/vendor.hpp"

namespace dp {
namespace {

constexpr std::array<std::string_view, 9> kKeys = {
    "nodes", "vendor", "devices", "tiles-per-device", "gres", "tiles-per-unit", "numa", "cpus", "files"};

// The words NAME=VALUE of one line.
using Words = std::map<std::string_view, std::string_view>;

Try<Words> read_words(std::string_view line) {
    constexpr std::string_view kBlanks = " \t\r";
    Words words;
    for (size_t begin = 0; (begin = line.find_first_not_of(kBlanks)) != std::string_view::npos;) {
        line.remove_prefix(begin);
        const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
        line.remove_prefix(word.size());
        const size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        if (equals == std::string_view::npos || std::find(kKeys.begin(), kKeys.end(), name) == kKeys.end())
            return fail("\"" + printable(word, 60) + "\" is not understood; there are " + join(kKeys, "=, ") +
                        "=");
        if (!words.emplace(name, word.substr(equals + 1)).second)
            return fail(std::string(name) + "= is given twice");
    }
    return words;
}

std::string_view value_of(const Words& words, std::string_view name) {
    const auto found = words.find(name);
    return found == words.end() ? std::string_view() : found->second;
}

// A number from 1 to kMaxTiles; `otherwise` if the word is missing and `otherwise` is not 0.
Try<uint32_t> number_of(const Words& words, std::string_view name, uint32_t otherwise) {
    const bool given = words.contains(name);
    if (!given && otherwise > 0) return otherwise;
    const auto number = parse_number<uint32_t>(value_of(words, name));
    if (!number || *number == 0 || *number > kMaxTiles)
        return fail(std::string(name) + "=" + (given ? printable(value_of(words, name), 40) : "...") +
                    (given ? "" : " is missing") + ": give a number from 1 to " + std::to_string(kMaxTiles));
    return *number;
}

Try<void> require_one_each(std::string_view name, size_t found, uint32_t devices) {
    if (found == devices) return {};
    return fail(std::string(name) + "= lists " + plural(found, "device") + ", and devices= says " +
                std::to_string(devices));
}

Try<std::vector<TileDevice>> read_devices(const Words& words, uint32_t count) {
    std::vector<TileDevice> devices(count);
    if (words.contains("numa")) {
        const auto parts = split(value_of(words, "numa"), ',');
        DP_TRY(require_one_each("numa", parts.size(), count));
        for (size_t i = 0; i < count; ++i) {
            devices[i].numa = parse_number<uint32_t>(parts[i]);
            if (!devices[i].numa)
                return fail("numa: \"" + printable(parts[i], 40) + "\" is not the number of a NUMA node");
        }
    }
    if (words.contains("cpus")) {
        const auto parts = split(value_of(words, "cpus"), '/');
        DP_TRY(require_one_each("cpus", parts.size(), count));
        for (size_t i = 0; i < count; ++i) {
            devices[i].cpus = parse_cpu_list(parts[i]).value_or(std::vector<uint32_t>());
            if (devices[i].cpus.empty())
                return fail("cpus: \"" + printable(parts[i], 60) +
                            "\" is not a list of CPUs, such as 0-15,32-47");
        }
    }
    if (words.contains("files")) {
        const auto files = expand_hostlist(value_of(words, "files"));
        if (!files) return fail("files: " + files.error().message);
        DP_TRY(require_one_each("files", files->size(), count));
        for (size_t i = 0; i < count; ++i) {
            const std::string& file = (*files)[i];
            if (file[0] != '/') return fail("files: \"" + printable(file, 60) + "\" is not an absolute path");
            if (std::find(files->begin(), files->end(), file) !=
                files->begin() + static_cast<std::ptrdiff_t>(i))
                return fail("files: " + printable(file, 60) + " is given twice");
            devices[i].file = file;
        }
    }
    return devices;
}

Try<TileInventory> read_inventory(const Words& words) {
    TileInventory inventory;
    const std::string_view name = value_of(words, "vendor");
    const auto vendor =
        std::find_if(kVendors.begin(), kVendors.end(), [&](const Vendor* v) { return v->name == name; });
    if (vendor == kVendors.end()) {
        std::vector<std::string_view> names;
        names.reserve(kVendors.size());
        for (const Vendor* one : kVendors) names.push_back(one->name);
        return fail("vendor=" + printable(name, 40) + ": give one of " + join(names, ", "));
    }
    inventory.vendor = *vendor;
    const auto devices = DP_TRY(number_of(words, "devices", 0));
    const auto per_device = DP_TRY(number_of(words, "tiles-per-device", 1));
    const uint64_t tiles = uint64_t{devices} * per_device;
    if (tiles > kMaxTiles)
        return fail(std::to_string(devices) + " devices of " + plural(per_device, "tile") + " are " +
                    std::to_string(tiles) + " tiles, and a node has at most " + std::to_string(kMaxTiles));
    TileLayout& layout = inventory.layout;
    layout.gres = value_of(words, "gres");
    if (layout.gres.empty()) layout.gres = inventory.vendor->default_gres;
    layout.tiles = static_cast<uint32_t>(tiles);
    layout.tiles_per_device = per_device;
    if (layout.gres.find_first_of(":;=()") != std::string::npos || printable(layout.gres) != layout.gres)
        return fail("gres=" + printable(layout.gres, 40) +
                    ": give the name of a gres alone, without type or count");
    const bool counts_tiles = layout.gres == "tile" || layout.gres == "rdu_tile";
    layout.tiles_per_unit = DP_TRY(number_of(words, "tiles-per-unit", counts_tiles ? 1 : per_device));
    if (layout.tiles % layout.tiles_per_unit != 0)
        return fail("a node's " + plural(layout.tiles, "tile") + " do not make whole units of gres " +
                    layout.gres + " with " + plural(layout.tiles_per_unit, "tile") + " each");
    // Slurm's own variables then name units that the program does not see.
    if (layout.gres == "gpu" && layout.tiles_per_unit != layout.tiles_per_device &&
        inventory.vendor != &kIntel)
        return fail("a unit of gres gpu is one device of " + std::string(inventory.vendor->name) +
                    ", so tiles-per-unit= is tiles-per-device=; leave it out, or give another gres");
    inventory.devices = DP_TRY(read_devices(words, devices));
    return inventory;
}

struct Line {
    Hostlist nodes;
    TileInventory inventory;
};

Try<Line> read_line(const Words& words) {
    auto nodes = Hostlist::read(value_of(words, "nodes"));
    if (!nodes) return fail("nodes: " + nodes.error().message);
    if (nodes->size() == 0) return fail("nodes= is missing: give the nodes that have these tiles");
    auto inventory = DP_TRY(read_inventory(words));
    return Line{std::move(*nodes), std::move(inventory)};
}

}  // namespace

Try<std::optional<TileInventory>> read_tiles_conf(std::string_view text, const std::string& path,
                                                  std::string_view node) {
    std::vector<Hostlist> nodes_of;
    std::vector<size_t> line_of;
    std::optional<TileInventory> found;
    const auto where = [&](size_t line) { return path + " line " + std::to_string(line); };
    size_t number = 0;
    size_t hosts = 0;
    for (std::string_view line : split(text, '\n')) {
        ++number;
        const auto words = read_words(line.substr(0, line.find('#')));
        if (words && words->empty()) continue;
        auto read = words.and_then(read_line);
        if (!read) return fail(where(number) + ": " + read.error().message);
        if (read->nodes.has(node)) {
            found = std::move(read->inventory);
            found->source = where(number);
        }
        hosts += read->nodes.size();
        if (hosts > kMaxHosts) return fail(where(number) + ": the file names too many nodes");
        nodes_of.push_back(std::move(read->nodes));
        line_of.push_back(number);
    }
    if (const auto twice = shared_host(nodes_of))
        return fail(where(line_of[twice->second]) + ": " + printable(twice->host, 60) +
                    " is already in line " + std::to_string(line_of[twice->first]));
    return found;
}

Try<std::optional<TileInventory>> written_inventory(const std::string& tiles_conf, const std::string& node) {
    const auto text = read_text(tiles_conf, 4 << 20, "is longer than 4 MiB");
    if (!text)
        return fail(text.error().message +
                    "; give a file there as tiles.conf(5) describes it, that every user may read");
    if (!*text) return std::nullopt;
    return read_tiles_conf(**text, tiles_conf, node);
}

Try<std::optional<TileInventory>> read_inventory(const std::string& tiles_conf, const std::string& node,
                                                 const std::string& root) {
    auto written = written_inventory(tiles_conf, node);
    if (!written || *written) return written;
    return found_inventory(root);
}

}  // namespace dp
