// SPDX-License-Identifier: Apache-2.0
#include "tiles/shares.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "common/hostlist.hpp"

namespace dp {
namespace {

std::vector<Tiles> by_device(const Tiles& owned, uint32_t tiles_per_device) {
    std::vector<Tiles> devices;
    for (uint32_t tile : owned) {
        if (devices.empty() || devices.back().back() / tiles_per_device != tile / tiles_per_device)
            devices.emplace_back();
        devices.back().push_back(tile);
    }
    return devices;
}

// Moves as many of the free tiles as there are, at most `count`.
void take(Tiles& free, size_t count, Tiles& taken) {
    const auto end = free.begin() + static_cast<std::ptrdiff_t>(std::min(count, free.size()));
    taken.insert(taken.end(), free.begin(), end);
    free.erase(free.begin(), end);
}

// Takes tiles from the first device that has enough free, else from those with the most: from few devices.
Tiles take_from(std::vector<Tiles>& devices, size_t count) {
    Tiles taken;
    while (taken.size() < count) {
        const size_t missing = count - taken.size();
        auto from = std::find_if(devices.begin(), devices.end(),
                                 [&](const Tiles& free) { return free.size() >= missing; });
        if (from == devices.end())
            from = std::max_element(devices.begin(), devices.end(),
                                    [](const Tiles& a, const Tiles& b) { return a.size() < b.size(); });
        take(*from, missing, taken);
    }
    std::sort(taken.begin(), taken.end());
    return taken;
}

}  // namespace

Try<Tiles> owned_tiles(const std::vector<GresUnits>& given, const TileLayout& layout) {
    Tiles owned;
    for (const GresUnits& units : given) {
        if (units.name != layout.gres || units.count == 0) continue;
        if (!units.indices)
            return fail("Slurm only counts the gres " + layout.gres + " of this node (" +
                        gres_detail({units}) +
                        ") and does not tell which are this job's; give it File= in gres.conf");
        if (units.indices->size() != units.count)
            return fail("Slurm names fewer units than it has given of the gres " +
                        printable(gres_detail({units}), 80) +
                        ": either jobs share a unit, or the list is too long for Slurm");
        for (uint32_t index : *units.indices) {
            const uint64_t end = (uint64_t{index} + 1) * layout.tiles_per_unit;
            if (end > layout.tiles)
                return fail("Slurm has given " + layout.gres + " " + std::to_string(index) +
                            ", but the node's " + plural(layout.tiles, "tile") + " make only " +
                            plural(layout.tiles / std::max(1u, layout.tiles_per_unit), "unit") +
                            "; correct tiles.conf or gres.conf");
            for (uint64_t tile = end - layout.tiles_per_unit; tile < end; ++tile)
                owned.push_back(static_cast<uint32_t>(tile));
        }
    }
    std::sort(owned.begin(), owned.end());
    if (std::adjacent_find(owned.begin(), owned.end()) != owned.end())
        return fail("Slurm has given a unit of the gres " + layout.gres + " twice");
    return owned;
}

Try<std::vector<Tiles>> share_tiles(const Tiles& owned, uint32_t tiles_per_device, uint32_t ranks,
                                    uint32_t per_rank) {
    const auto owns = [&] { return "the step owns " + plural(owned.size(), "tile") + " on this node"; };
    if (ranks == 0) return std::vector<Tiles>();
    if (per_rank == 0) {
        if (owned.empty() || owned.size() % ranks != 0)
            return fail(owns() + ", which do not divide evenly among " + plural(ranks, "rank") +
                        (owned.size() < ranks ? "; ask for more of them, or start fewer ranks a node"
                                              : "; give --dp-tiles=" + std::to_string(owned.size() / ranks) +
                                                    ", and some stay unused"));
        per_rank = static_cast<uint32_t>(owned.size() / ranks);
    }
    const uint64_t wanted = uint64_t{ranks} * per_rank;
    if (wanted > owned.size())
        return fail("--dp-tiles=" + std::to_string(per_rank) + " for " + plural(ranks, "rank") + " needs " +
                    plural(wanted, "tile") + ", and " + owns() +
                    "; ask Slurm for more, or start fewer ranks");
    auto devices = by_device(owned, std::max(1u, tiles_per_device));
    std::vector<Tiles> shares;
    shares.reserve(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) shares.push_back(take_from(devices, per_rank));
    return shares;
}

std::string tile_mask(const Tiles& tiles) {
    if (tiles.empty()) return "0x0";
    std::string digits(tiles.back() / 4 + 1, '0');
    std::vector<unsigned> nibbles(digits.size(), 0);
    for (uint32_t tile : tiles) nibbles[tile / 4] |= 1u << (tile % 4);
    for (size_t i = 0; i < digits.size(); ++i) digits[digits.size() - 1 - i] = "0123456789abcdef"[nibbles[i]];
    return "0x" + digits;
}

Tiles parse_tiles(std::string_view text) {
    const Tiles tiles = parse_ranges<uint32_t>(text, kMaxTiles - 1).value_or(Tiles());
    const bool ascend = std::adjacent_find(tiles.begin(), tiles.end(), std::greater_equal<>()) == tiles.end();
    return ascend ? tiles : Tiles();
}

}  // namespace dp
