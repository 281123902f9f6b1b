// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/gathered_numbers.hpp"

#include <algorithm>

namespace dp::trainer {

Result<std::vector<float>> GatheredNumbers::of_shard(const Vector& vector, std::int64_t done,
                                                     std::int64_t count) {
    const std::int64_t world = world_.size();
    const auto piece = [&](std::int64_t rank) {
        const Shard shard = shard_of(vector.elements(), rank, world);
        return Shard{shard.first + done, std::clamp<std::int64_t>(shard.count - done, 0, count)};
    };
    exchange_.begin(world * count);
    for (std::int64_t rank = 0; rank < world; ++rank) put(vector, piece(rank), rank * count);
    DP_TRY(exchange_.exchange(
        [this](const Tensor& numbers) { return world_.all_reduce(numbers, Reduction::sum); }));
    std::vector<float> mine(static_cast<std::size_t>(piece(world_.rank()).count));
    exchange_.get(world_.rank() * count, mine);
    return mine;
}

// What this rank brings of these numbers of the whole model's vector.
void GatheredNumbers::put(const Vector& vector, const Shard& wanted, std::int64_t at) {
    const bool is_sharded = vector.numbers.elements() < vector.of_rank;
    if (!is_sharded && !is_first_) return;
    std::vector<float> numbers;
    for (const PlacedPart& one : parts_) {
        const std::int64_t end = one.whole_first + elements_of(one.part.whole);
        if (one.part.is_copy || one.whole_first >= wanted.first + wanted.count || end <= wanted.first)
            continue;
        for (const Extent& extent : extents_of(one.part)) {
            // [there, there + count) is in the whole vector, and so much further on in this rank's.
            const std::int64_t there = one.whole_first + extent.there,
                               further = one.first + extent.here - there;
            const std::int64_t from = std::max({there, wanted.first, vector.first - further}),
                               to = std::min({there + extent.count, wanted.first + wanted.count,
                                              vector.first + vector.numbers.elements() - further});
            if (from >= to) continue;
            numbers.resize(static_cast<std::size_t>(to - from));
            device_.download(vector.part(from + further, to - from), numbers.data());
            exchange_.put(at + from - wanted.first, numbers);
        }
    }
}

}  // namespace dp::trainer
