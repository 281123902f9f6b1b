// SPDX-License-Identifier: Apache-2.0
//
// tiles.conf, and behind a line of "--" what a job was given: a plan never leaves what was given, and no two
// ranks have one tile.
#include <algorithm>
#include <numeric>

#include "target.hpp"
#include "tiles/conf.hpp"
#include "tiles/plan.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using dp::fuzz::must;
    const std::string text(dp::fuzz::text_of(data, size));
    const size_t end = text.find("--\n");
    const auto inventory = dp::read_tiles_conf(text.substr(0, end), "tiles.conf", "n1");
    if (!inventory) must(!inventory.error().message.empty(), "a refusal says why");
    if (!inventory || !*inventory || end == std::string::npos) return 0;
    const dp::TileLayout& layout = (*inventory)->layout;
    must(layout.tiles > 0 && layout.tiles <= dp::kMaxTiles, "a node has tiles, and not too many");
    must((*inventory)->devices.size() * layout.tiles_per_device == layout.tiles,
         "every tile lies on a device");

    const auto detail = dp::gres_of_node(std::string_view(text).substr(end + 3), "n1");
    if (!detail) return 0;
    const auto given = dp::parse_gres_detail(*detail);
    if (!given) return 0;
    dp::TileFacts facts;
    facts.inventory = &**inventory;
    facts.given = *given;
    facts.ranks.resize(1 + size % 7);
    std::iota(facts.ranks.begin(), facts.ranks.end(), 0u);
    facts.per_rank = static_cast<uint32_t>(size % 5);
    const auto owned = dp::owned_tiles(*given, layout);
    dp::Tiles taken;
    for (facts.local_rank = 0; facts.local_rank < facts.ranks.size(); ++facts.local_rank) {
        const auto plan = dp::plan_tiles(facts);
        if (!plan) {
            must(!plan.error().message.empty(), "a refusal says why");
            return 0;
        }
        must(!plan->own.empty(), "a rank with a plan has a tile");
        must(owned && std::includes(owned->begin(), owned->end(), plan->own.begin(), plan->own.end()),
             "no tile that was not given");
        taken.insert(taken.end(), plan->own.begin(), plan->own.end());
    }
    std::sort(taken.begin(), taken.end());
    must(std::adjacent_find(taken.begin(), taken.end()) == taken.end(), "no tile for two ranks");
    return 0;
}
