// SPDX-License-Identifier: Apache-2.0
//
// How many of gpt's layers each stage of a pipeline has, and each of its model chunks. The embedding is on the first stage, and
// the head with its loss on the last one, which for gpt 124M costs as much as five layers: the last stage gets fewer layers, so
// that the slowest stage takes as short as it can. The model itself, memory, `trainer plan` and the report line all ask here.
// Pure, and in whole numbers, so that all ranks say the same.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/models/model.hpp"

namespace dp::trainer {

// FLOPs of a token in both passes.
struct SplitCosts {
    std::int64_t layer = 1;
    std::int64_t embedding = 0, head = 0;  // on the first stage, and on the last one
};
// The products of weights and of attention's scores, of which the causal half counts; a layer that is recomputed has a second
// forward pass. Ranks that divide each layer divide all of it alike.
SplitCosts split_costs(const GptShape& shape);

// Layers of each model chunk in the model's order: chunk c of stage s is the (c x stages + s)-th. Each has at least one. The
// slowest stage takes as short as it can, and of each stage the slowest chunk. Where layers could be on several stages, a later
// one has them: it keeps fewer micro-batches.
std::vector<std::int64_t> balanced_layers(std::int64_t layers, std::int64_t stages, std::int64_t chunks,
                                          const SplitCosts& costs);
// As even as they can be.
std::vector<std::int64_t> even_layers(std::int64_t layers, std::int64_t chunks);

// As the layout wants it.
std::vector<std::int64_t> chunk_layers(const GptShape& shape);
// What a token costs in each of these chunks.
std::vector<std::int64_t> chunk_costs(const GptShape& shape);
// The part of it that is in forward passes.
double forward_part(const GptShape& shape);

// Stages of which one needs the most memory: the first and the last one, and of those between them with the same layers the
// earliest, which keeps most micro-batches.
std::vector<std::int64_t> largest_stages(const GptShape& shape);

}  // namespace dp::trainer
