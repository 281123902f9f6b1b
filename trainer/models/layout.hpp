// SPDX-License-Identifier: Apache-2.0
//
// Which part of a model a rank has, where ranks divide its layers (tensor parallelism, Shoeybi et al. 2019).
#pragma once

#include <cstdint>

namespace dp::trainer {

// Without values: all of it. Models that cannot be divided have no other.
struct Layout {
    std::int64_t tensor_rank = 0, tensor_ranks = 1;

    bool is_whole() const { return tensor_ranks == 1; }
    // The first of the ranks that divide a layer, which answers for what all of them have.
    bool is_first() const { return tensor_rank == 0; }
    // A rank's share of heads or columns, which tensor_ranks divides.
    std::int64_t share(std::int64_t things) const { return things / tensor_ranks; }
};

}  // namespace dp::trainer
