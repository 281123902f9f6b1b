// SPDX-License-Identifier: Apache-2.0
//
// Which part of a model a rank has: of each layer some heads and columns, where ranks divide the layers (tensor parallelism,
// Shoeybi et al. 2019), and some of the layers, where ranks are the stages of a pipeline (Huang et al. 2019, Narayanan et al.
// 2021). Ranks that divide the layers may also divide the tokens, for what is computed token by token (sequence parallelism,
// Korthikanti et al. 2022).
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "trainer/base/partition.hpp"

namespace dp::trainer {

// How the layers are divided among the stages (pipeline_split.hpp).
struct PipelineSplit {
    bool is_even = false;              // without regard to what embedding and head cost
    std::vector<std::int64_t> layers;  // exactly so: of each model chunk, in the model's order
    bool operator==(const PipelineSplit&) const = default;
};

// Without values: all of it. Models that cannot be divided have no other.
struct Layout {
    std::int64_t tensor_rank = 0, tensor_ranks = 1;
    std::int64_t stage = 0, stages = 1;
    // Model chunks of each stage: stage s has the s-th, the (s + stages)-th and so on of all (Narayanan et al. 2021, section 2.2).
    std::int64_t chunks = 1;
    std::int64_t slots = 1;  // passes of chunks that this stage has begun and not taken back, at most
    bool divides_tokens = false;
    PipelineSplit split = {};
    // How many layers the chunks of all stages have, in the model's order. The model knows it: chunk_layers() depends on its
    // shape.
    std::vector<std::int64_t> chunk_layers = {};

    bool is_whole() const { return tensor_ranks == 1 && stages == 1; }
    bool divides_layers() const { return tensor_ranks > 1; }
    // The first of the ranks that divide a layer, which answers for what all of them have.
    bool is_first() const { return tensor_rank == 0; }
    // A rank's share of heads or columns, which tensor_ranks divides.
    std::int64_t share(std::int64_t things) const { return things / tensor_ranks; }

    // The number of ranks that divide a sequence's tokens; it divides the sequence length.
    std::int64_t token_parts() const { return divides_tokens ? tensor_ranks : 1; }
    // This rank's of a batch's tokens: all, or its part.
    Shard own_of(std::int64_t tokens) const {
        return divides_tokens ? shard_of(tokens, tensor_rank, tensor_ranks) : Shard{0, tokens};
    }

    bool is_first_stage() const { return stage == 0; }
    bool is_last_stage() const { return stage + 1 == stages; }
    // Whether a pass begins with this chunk, or ends with it.
    bool begins(std::int64_t chunk) const { return is_first_stage() && chunk == 0; }
    bool ends(std::int64_t chunk) const { return is_last_stage() && chunk + 1 == chunks; }
    // Those of this stage's chunk.
    Shard layers_of(std::int64_t chunk) const {
        const auto here = chunk_layers.begin() + (chunk * stages + stage);
        return {std::accumulate(chunk_layers.begin(), here, std::int64_t{0}), *here};
    }
    // The chunk that has this layer, if one of this stage's does.
    std::optional<std::int64_t> chunk_with(std::int64_t layer) const {
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
            if (const auto [first, count] = layers_of(chunk); layer >= first && layer < first + count)
                return chunk;
        return std::nullopt;
    }
    // Of the largest chunk here.
    std::int64_t most_layers() const {
        std::int64_t most = 0;
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk) most = std::max(most, layers_of(chunk).count);
        return most;
    }
};

}  // namespace dp::trainer
