// SPDX-License-Identifier: Apache-2.0
#include "tiles/conf.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/ranges.hpp"
#include "tiles/cpus.hpp"
#include "tiles/vendor.hpp"

namespace dp {
namespace {

constexpr std::array<std::string_view, 9> kKeys = {
    "nodes", "vendor", "devices", "tiles-per-device", "gres", "tiles-per-unit", "numa", "cpus", "files"};

// The words NAME=VALUE of one line.
class Words {
 public:
    // False if the name is there already.
    bool add(std::string_view name, std::string_view value) {
        if (find(name)) return false;
        words_.emplace_back(name, value);
        return true;
    }
    bool empty() const { return words_.empty(); }
    std::optional<std::string_view> find(std::string_view name) const {
        for (const auto& [there, value] : words_)
            if (there == name) return value;
        return std::nullopt;
    }

 private:
    std::vector<std::pair<std::string_view, std::string_view>> words_;
};

Try<Words> read_words(std::string_view line) {
    Words words;
    for (std::string_view rest = line; !rest.empty();) {
        const size_t begin = rest.find_first_not_of(" \t\r");
        if (begin == std::string_view::npos) break;
        rest.remove_prefix(begin);
        const std::string_view word = rest.substr(0, rest.find_first_of(" \t\r"));
        rest.remove_prefix(word.size());
        const size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        if (equals == std::string_view::npos || std::find(kKeys.begin(), kKeys.end(), name) == kKeys.end()) {
            std::string known;
            for (std::string_view key : kKeys) known += (known.empty() ? "" : ", ") + std::string(key) + "=";
            return fail("\"" + printable(word, 60) + "\" is not understood; there are " + known);
        }
        if (!words.add(name, word.substr(equals + 1)))
            return fail(std::string(name) + "= stands there twice");
    }
    return words;
}

std::string_view value_of(const Words& words, std::string_view name) {
    return words.find(name).value_or("");
}

// A number from 1 to kMaxTiles; `otherwise` if the word is missing and `otherwise` is not 0.
Try<uint32_t> number_of(const Words& words, std::string_view name, uint32_t otherwise) {
    const bool given = words.find(name).has_value();
    if (!given && otherwise > 0) return otherwise;
    const auto number = parse_number<uint32_t>(value_of(words, name));
    if (!number || *number == 0 || *number > kMaxTiles)
        return fail(std::string(name) + "=" + (given ? printable(value_of(words, name), 40) : "...") +
                    (given ? "" : " is missing") + ": give a number from 1 to " + std::to_string(kMaxTiles));
    return *number;
}

Try<std::vector<uint32_t>> read_cpus(std::string_view list) {
    auto cpus = parse_ranges<uint32_t>(list, kMaxCpu);
    if (!cpus || cpus->empty())
        return fail("cpus: \"" + printable(list, 60) + "\" is no list of CPUs, such as 0-15,32-47");
    return std::move(*cpus);
}

tl::unexpected<Failure> not_for_each(std::string_view name, size_t found, uint32_t devices) {
    return fail(std::string(name) + "= speaks of " + plural(found, "device") + ", devices= of " +
                std::to_string(devices));
}

Try<std::vector<TileDevice>> read_devices(const Words& words, uint32_t count) {
    std::vector<TileDevice> devices(count);
    if (words.find("numa")) {
        const auto parts = split(value_of(words, "numa"), ',');
        if (parts.size() != count) return not_for_each("numa", parts.size(), count);
        for (size_t i = 0; i < count; ++i) {
            devices[i].numa = parse_number<uint32_t>(parts[i]);
            if (!devices[i].numa)
                return fail("numa: \"" + printable(parts[i], 40) + "\" is not the number of a NUMA node");
        }
    }
    if (words.find("cpus")) {
        const auto parts = split(value_of(words, "cpus"), '/');
        if (parts.size() != count) return not_for_each("cpus", parts.size(), count);
        for (size_t i = 0; i < count; ++i) {
            auto cpus = DP_TRY(read_cpus(parts[i]));
            devices[i].cpus = std::move(cpus);
        }
    }
    if (words.find("files")) {
        auto files = expand_hostlist(value_of(words, "files"));
        if (!files) return fail("files: " + files.error().message);
        if (files->size() != count) return not_for_each("files", files->size(), count);
        for (size_t i = 0; i < count; ++i) {
            if ((*files)[i][0] != '/')
                return fail("files: \"" + printable((*files)[i], 60) + "\" is no absolute path");
            if (std::any_of(devices.begin(), devices.end(),
                            [&](const TileDevice& d) { return d.file == (*files)[i]; }))
                return fail("files: " + printable((*files)[i], 60) + " stands there twice");
            devices[i].file = std::move((*files)[i]);
        }
    }
    return devices;
}

std::string names_of_vendors() {
    std::string names;
    for (const Vendor* vendor : kVendors)
        names += (names.empty() ? "" : vendor == kVendors.back() ? " or " : ", ") + std::string(vendor->name);
    return names;
}

Try<TileInventory> read_inventory(const Words& words) {
    TileInventory inventory;
    const std::string_view name = value_of(words, "vendor");
    const auto vendor =
        std::find_if(kVendors.begin(), kVendors.end(), [&](const Vendor* v) { return v->name == name; });
    if (vendor == kVendors.end())
        return fail("vendor=" + printable(name, 40) + ": give " + names_of_vendors());
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
    const auto per_unit = DP_TRY(number_of(words, "tiles-per-unit", counts_tiles ? 1 : per_device));
    layout.tiles_per_unit = per_unit;
    if (layout.tiles % layout.tiles_per_unit != 0)
        return fail("a node's " + plural(layout.tiles, "tile") + " do not make whole units of gres " +
                    layout.gres + " with " + plural(layout.tiles_per_unit, "tile") + " each");
    // Slurm's own variables then name units that the program does not see.
    if (layout.gres == "gpu" && layout.tiles_per_unit != layout.tiles_per_device &&
        inventory.vendor != &kIntel)
        return fail("a unit of gres gpu is one device of " + std::string(inventory.vendor->name) +
                    ", so tiles-per-unit= is tiles-per-device=; leave it out, or give another gres");
    auto read = DP_TRY(read_devices(words, devices));
    inventory.devices = std::move(read);
    return inventory;
}

Try<Hostlist> read_nodes(const Words& words) {
    auto nodes = Hostlist::read(value_of(words, "nodes"));
    if (!nodes) return fail("nodes: " + nodes.error().message);
    if (nodes->size() == 0) return fail("nodes= is missing: give the nodes that have these tiles");
    return nodes;
}

}  // namespace

Try<std::optional<TileInventory>> read_tiles_conf(std::string_view text, const std::string& path,
                                                  std::string_view node) {
    std::vector<Hostlist> nodes_of;
    std::vector<size_t> line_of;
    std::optional<TileInventory> found;
    size_t number = 0;
    const auto where = [&](size_t line) { return path + " line " + std::to_string(line); };
    for (std::string_view line : split(text, '\n')) {
        ++number;
        const auto words = read_words(line.substr(0, line.find('#')));
        if (!words) return fail(where(number) + ": " + words.error().message);
        if (words->empty()) continue;
        auto nodes = read_nodes(*words);
        if (!nodes) return fail(where(number) + ": " + nodes.error().message);
        auto inventory = read_inventory(*words);
        if (!inventory) return fail(where(number) + ": " + inventory.error().message);
        if (nodes->has(node)) {
            found = std::move(*inventory);
            found->source = where(number);
        }
        nodes_of.push_back(std::move(*nodes));
        line_of.push_back(number);
    }
    if (const auto twice = Hostlist::shared_host(nodes_of))
        return fail(where(line_of[twice->second]) + ": " + printable(twice->host, 60) + " stands in line " +
                    std::to_string(line_of[twice->first]) + " already");
    return found;
}

}  // namespace dp
