// SPDX-License-Identifier: Apache-2.0
//
// The part of a parameter that a rank has where ranks divide a model. Its initial values, gradients' norm and place in the whole
// model follow from it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/base/partition.hpp"
#include "trainer/base/tensor.hpp"

namespace dp::trainer {

// Ranges of the parameter's rows, one behind the other in the rank's memory, and of each of these rows the same columns. (Columns:
// all dimensions but the first, together.)
struct ParameterPart {
    Shape whole;              // of the parameter
    std::vector<Shard> rows;  // ascending, disjoint, none empty
    Shard columns;
    bool is_copy = false;  // an earlier rank has the same and answers for it

    Shape shape() const;  // of what is here; without rows where there is nothing
    bool is_whole() const { return elements_of(shape()) == elements_of(whole); }
};

ParameterPart whole_part(Shape whole, bool is_copy = false);
// None of it: other ranks have it.
ParameterPart absent_part(Shape whole);
// The share of `rank` of `ranks` in each of `blocks` equal blocks of rows. `ranks` divides a block.
ParameterPart row_part(Shape whole, std::int64_t blocks, std::int64_t rank, std::int64_t ranks);
// The share in the columns of all rows. `ranks` divides them.
ParameterPart column_part(Shape whole, std::int64_t rank, std::int64_t ranks);

// Numbers that lie one behind the other both in the whole parameter (there) and in the part (here).
struct Extent {
    std::int64_t there, here, count;
    bool operator==(const Extent&) const = default;
};
// All of a part, as few as possible, in its order.
std::vector<Extent> extents_of(const ParameterPart& part);

// What the part has of all of the parameter's numbers.
std::vector<float> taken_from(std::span<const float> whole, const ParameterPart& part);

}  // namespace dp::trainer
