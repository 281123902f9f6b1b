// SPDX-License-Identifier: Apache-2.0
#include "record/transports.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/text.hpp"

namespace dp {

void RecordedTransports::merge(RecordedTransports more) {
    const size_t room = kMostPairsOfRun - std::min(pairs.size(), kMostPairsOfRun);
    const size_t taken = std::min(room, more.pairs.size());
    left_out += more.left_out + (more.pairs.size() - taken);
    pairs.insert(pairs.end(), std::make_move_iterator(more.pairs.begin()),
                 std::make_move_iterator(more.pairs.begin() + static_cast<ptrdiff_t>(taken)));
}

void RecordedTransports::sort() {
    std::ranges::sort(pairs, {}, [](const Pair& one) { return std::tie(one.from, one.to, one.via); });
}

std::optional<record::Entry> transports_entry(uint32_t generation, const wire::NcclTransports& found,
                                              uint32_t world_size, const std::vector<uint32_t>& ranks) {
    if (found.world_size() != world_size) return std::nullopt;
    const std::set<uint32_t> own(ranks.begin(), ranks.end());
    record::Entry entry;
    auto& transports = *entry.mutable_transports();
    transports.set_generation(generation);
    transports.set_pairs_left_out(found.pairs_left_out());
    for (const auto& pair : found.pairs()) {
        const bool is_in_world = std::max(pair.from(), pair.to()) < world_size;
        if (!is_in_world || (!own.contains(pair.from()) && !own.contains(pair.to()))) continue;
        auto& one = *transports.add_pairs();
        one.set_from(pair.from());
        one.set_to(pair.to());
        one.set_via(printable(pair.via(), kMaxVia));
        one.set_channels(pair.channels());
    }
    return transports.pairs().empty() ? std::nullopt : std::optional(std::move(entry));
}

RecordedTransports transports_of(const record::Transports& said, uint32_t world_size) {
    RecordedTransports out;
    out.left_out = said.pairs_left_out();
    for (const auto& pair : said.pairs()) {
        if (std::max(pair.from(), pair.to()) >= world_size) continue;
        if (out.pairs.size() < kMostPairs)
            out.pairs.push_back({pair.from(), pair.to(), printable(pair.via(), kMaxVia), pair.channels()});
        else
            ++out.left_out;
    }
    return out;
}

}  // namespace dp
