// SPDX-License-Identifier: Apache-2.0
//
// `dpctl tiles`.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "base/host_name.hpp"
#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"
#include "engine/table.hpp"
#include "nvml/devices.hpp"
#include "tiles/conf.hpp"
#include "tiles/gres.hpp"
#include "tiles/sysfs.hpp"
#include "tiles/vendor.hpp"

namespace dp {
namespace {

// Slurm's name of this node: several may run on one host, and slurmd tells each its name.
std::string this_node() {
    if (const char* name = std::getenv("SLURMD_NODENAME"); name && *name) return name;
    const std::string whole = host_name();
    return whole.substr(0, whole.find('.'));
}

std::string or_dash(const std::string& text) {
    return text.empty() ? "-" : text;
}

Tiles tiles_of(const TileInventory& inventory, size_t device) {
    const uint32_t each = inventory.layout.tiles_per_device;
    Tiles tiles;
    for (uint32_t i = 0; i < each; ++i) tiles.push_back(static_cast<uint32_t>(device) * each + i);
    return tiles;
}

// By device; all empty if nobody tells.
Try<std::vector<std::string>> uuids_of(const TileInventory& inventory, const TilesOptions& options) {
    std::vector<std::string> uuids(inventory.devices.size());
    if (inventory.vendor != &kNvidia) return uuids;
    const auto known = DP_TRY(nvml_devices(options.root, options.nvml, [](const std::string& why) {
        complain("a UUID stays unknown: " + why);
    }));
    for (size_t i = 0; i < uuids.size(); ++i)
        for (const NvmlDevice& device : known)
            if (device.file == inventory.devices[i].file) uuids[i] = device.uuid;
    return uuids;
}

// Fills in the CPUs that tiles.conf leaves to the NUMA nodes, as a step here does. Returns a message about
// NUMA nodes that this machine does not have: ranks there are not bound.
std::optional<std::string> look_up_cpus(TileInventory& inventory, const std::string& root) {
    const auto there = list_numbered(folder_of_numa(root), "node");
    if (!there || there->empty()) return std::nullopt;
    std::set<uint32_t> strangers;
    for (TileDevice& device : inventory.devices) {
        if (!device.numa) continue;
        if (!std::binary_search(there->begin(), there->end(), *device.numa))
            strangers.insert(*device.numa);
        else if (device.cpus.empty())
            device.cpus = cpus_of_numa(root, *device.numa);
    }
    if (strangers.empty()) return std::nullopt;
    return inventory.source + ": numa= names NUMA node " +
           compress_ranks(std::vector(strangers.begin(), strangers.end())) + ", and this machine has " +
           compress_ranks(*there) + "; correct it, or ranks are not bound near it";
}

// The node's gres according to Slurm; nullopt if there is no Slurm to ask, or no such node.
std::optional<std::string> gres_of_slurms_node(const std::string& scontrol, const std::string& node) {
    constexpr std::string_view kKey = " Gres=";
    if (node.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") !=
        std::string::npos)
        return std::nullopt;
    FILE* pipe = popen((scontrol + " -o show node " + node + " 2>/dev/null").c_str(), "re");
    if (!pipe) return std::nullopt;
    std::string text;
    std::array<char, 4096> part{};
    while (const size_t size = fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), size);
    pclose(pipe);
    const size_t at = text.find(kKey);
    if (at == std::string::npos) return std::nullopt;
    return text.substr(at + kKey.size(), text.find(' ', at + 1) - at - kKey.size());
}

}  // namespace

std::optional<std::string> disagreement(const TileInventory& inventory, std::string_view node_gres) {
    const TileLayout& layout = inventory.layout;
    const uint64_t expected = layout.tiles / layout.tiles_per_unit;
    const uint64_t configured = configured_units(node_gres, layout.gres);
    if (configured == expected) return std::nullopt;
    return inventory.source + ": the " + plural(layout.tiles, "tile") + " of the node make " +
           plural(expected, "unit") + " of gres " + layout.gres + ", and Slurm's node has " +
           std::to_string(configured) + "; correct tiles.conf, or Gres= in slurm.conf";
}

std::string tiles_text(const std::string& node, const TileInventory& inventory,
                       const std::vector<std::string>& uuids) {
    const TileLayout& layout = inventory.layout;
    const bool with_uuids = std::ranges::any_of(uuids, [](const std::string& uuid) { return !uuid.empty(); });
    std::vector<std::vector<std::string>> rows = {{"TILES", "DEVICE", "NAME", "FILE", "NUMA", "CPUS"}};
    if (with_uuids) rows.front().emplace_back("UUID");
    for (size_t i = 0; i < inventory.devices.size(); ++i) {
        const TileDevice& device = inventory.devices[i];
        rows.push_back({compress_ranks(tiles_of(inventory, i)), std::to_string(i),
                        or_dash(printable(device.name)), or_dash(printable(device.file)),
                        device.numa ? std::to_string(*device.numa) : "-",
                        or_dash(compress_ranks(device.cpus))});
        if (with_uuids) rows.back().push_back(or_dash(uuids[i]));
    }
    return node + ": " + plural(layout.tiles, "tile") + " on " + plural(inventory.devices.size(), "device") +
           " of " + std::string(inventory.vendor->name) + ", a unit of gres " + layout.gres + " is " +
           plural(layout.tiles_per_unit, "tile") + " (" + inventory.source + ")\n" + aligned(rows, 2);
}

std::string tiles_json(const std::string& node, const TileInventory& inventory,
                       const std::vector<std::string>& uuids) {
    using Json = nlohmann::ordered_json;
    Json devices = Json::array();
    for (size_t i = 0; i < inventory.devices.size(); ++i) {
        const TileDevice& device = inventory.devices[i];
        devices.push_back({{"device", i},
                           {"tiles", tiles_of(inventory, i)},
                           {"name", printable(device.name)},
                           {"file", printable(device.file)},
                           {"numa", device.numa ? Json(*device.numa) : Json()},
                           {"cpus", device.cpus},
                           {"uuid", uuids[i]}});
    }
    const Json out = {{"node", printable(node)},
                      {"vendor", inventory.vendor->name},
                      {"gres", printable(inventory.layout.gres)},
                      {"tiles", inventory.layout.tiles},
                      {"tiles_per_device", inventory.layout.tiles_per_device},
                      {"tiles_per_unit", inventory.layout.tiles_per_unit},
                      {"source", printable(inventory.source)},
                      {"devices", std::move(devices)}};
    return out.dump(2) + "\n";
}

int show_tiles(const TilesOptions& options) {
    const bool other = !options.node.empty();
    const std::string node = printable(other ? options.node : this_node(), 80);
    auto inventory = written_inventory(options.conf, node);
    if (!inventory) {
        complain(inventory.error().message);
        return 2;
    }
    if (!*inventory && other)
        return complain(
            options.conf + " says nothing about node " + node +
            "; write a line for it, see tiles.conf(5), or ask on that node, where its devices are");
    if (!*inventory) inventory = found_inventory(options.root);
    if (!inventory) return complain(inventory.error().message);
    if (!*inventory)
        return complain("no tiles are known of node " + node + ": " + options.conf +
                        " does not name it, and /sys and /proc show no accelerator that can be detected; "
                        "write a line for it, see tiles.conf(5), or name the site's file with --conf where "
                        "plugstack.conf has tiles-conf=");
    if (const auto gres = gres_of_slurms_node(options.scontrol, node))
        if (const auto why = disagreement(**inventory, *gres)) complain(*why);
    std::vector<std::string> uuids((*inventory)->devices.size());
    if (!other) {
        if (const auto why = look_up_cpus(**inventory, options.root)) complain(*why);
        auto known = uuids_of(**inventory, options);
        if (known)
            uuids = std::move(*known);
        else
            complain("UUIDs stay unknown: " + known.error().message);
    }
    return print(options.json ? tiles_json(node, **inventory, uuids) : tiles_text(node, **inventory, uuids));
}

}  // namespace dp
