// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/parameter_part.hpp"

#include <algorithm>

namespace dp::trainer {
namespace {

std::int64_t columns_of(const Shape& whole) {
    return elements_of(whole) / whole.at(0);
}

}  // namespace

Shape ParameterPart::shape() const {
    std::int64_t count = 0;
    for (const Shard& range : rows) count += range.count;
    if (count == whole.at(0) && columns.count == columns_of(whole)) return whole;
    return whole.size() == 1 ? Shape{count} : Shape{count, columns.count};
}

ParameterPart whole_part(Shape whole, bool is_copy) {
    const Shard rows{0, whole.at(0)}, columns{0, columns_of(whole)};
    return {std::move(whole), {rows}, columns, is_copy};
}

ParameterPart absent_part(Shape whole) {
    ParameterPart part = whole_part(std::move(whole));
    part.rows.clear();
    return part;
}

ParameterPart row_part(Shape whole, std::int64_t blocks, std::int64_t rank, std::int64_t ranks) {
    ParameterPart part = whole_part(std::move(whole));
    const std::int64_t block = part.whole.at(0) / blocks;
    const Shard share = shard_of(block, rank, ranks);
    part.rows.clear();
    for (std::int64_t number = 0; number < blocks; ++number)
        part.rows.push_back({number * block + share.first, share.count});
    return part;
}

ParameterPart column_part(Shape whole, std::int64_t rank, std::int64_t ranks) {
    ParameterPart part = whole_part(std::move(whole));
    part.columns = shard_of(part.columns.count, rank, ranks);
    return part;
}

std::vector<Extent> extents_of(const ParameterPart& part) {
    const std::int64_t length = columns_of(part.whole);
    std::vector<Extent> extents;
    std::int64_t here = 0;
    const auto add = [&](std::int64_t there, std::int64_t count) {
        if (!extents.empty() && extents.back().there + extents.back().count == there)
            extents.back().count += count;
        else
            extents.push_back({there, here, count});
        here += count;
    };
    for (const Shard& range : part.rows)
        for (std::int64_t row = range.first; row < range.first + range.count; ++row)
            add(row * length + part.columns.first, part.columns.count);
    return extents;
}

std::vector<float> taken_from(std::span<const float> whole, const ParameterPart& part) {
    std::vector<float> taken(static_cast<std::size_t>(elements_of(part.shape())));
    for (const Extent& extent : extents_of(part))
        std::copy_n(whole.begin() + extent.there, extent.count, taken.begin() + extent.here);
    return taken;
}

}  // namespace dp::trainer
