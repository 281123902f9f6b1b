// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/gathered_numbers.hpp"

#include <algorithm>
#include <bit>

namespace dp::trainer {

// Every number is of one rank, so the sum of their bits has its bits. As floats, -0 would become 0.
Result<std::vector<float>> GatheredNumbers::of_shard(const Vector& vector, std::int64_t done,
                                                     std::int64_t count) {
    const std::int64_t world = world_.size();
    const auto piece = [&](std::int64_t rank) {
        const Shard shard = shard_of(vector.elements(), rank, world);
        return Shard{shard.first + done, std::clamp<std::int64_t>(shard.count - done, 0, count)};
    };
    std::vector<std::int64_t> bits(static_cast<std::size_t>(world * count));
    for (std::int64_t rank = 0; rank < world; ++rank)
        add(vector, piece(rank), std::span(bits).subspan(static_cast<std::size_t>(rank * count)));
    const Tensor all = device_.copy_of<std::int64_t>(Type::i64, {world * count}, bits);
    DP_TRY(world_.all_reduce(all, Reduction::sum));
    std::vector<float> mine;
    for (const std::int64_t number :
         device_.values_of<std::int64_t>(all.view(world_.rank() * count, {piece(world_.rank()).count})))
        mine.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(number)));
    DP_TRY(device_.status());
    return mine;
}

// What this rank brings of these numbers of the whole model's vector.
void GatheredNumbers::add(const Vector& vector, const Shard& wanted, std::span<std::int64_t> bits) {
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
            std::ranges::transform(numbers, bits.begin() + (from - wanted.first),
                                   [](float number) { return std::bit_cast<std::uint32_t>(number); });
        }
    }
}

}  // namespace dp::trainer
