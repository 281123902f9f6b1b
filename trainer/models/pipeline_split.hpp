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

// FLOPs of a token.
struct PassFlops {
    std::int64_t forward = 0, backward = 0;

    std::int64_t both() const { return forward + backward; }
    PassFlops& operator+=(const PassFlops& other) {
        forward += other.forward;
        backward += other.backward;
        return *this;
    }
    bool operator==(const PassFlops&) const = default;
};
struct SplitCosts {
    std::vector<PassFlops> layers;
    PassFlops embedding, head;  // on the first stage, and on the last one
};
// The products of weights and of attention's scores, of which the causal half counts; a layer that is recomputed has a second
// forward pass. A frozen weight has no gradient, and layers below all that is learnt have no backward pass. Ranks that divide each
// layer divide all of it alike.
SplitCosts split_costs(const GptShape& shape);

// What each layer takes, and what its stage takes besides if it is the first or the last one.
struct StageCosts {
    std::vector<std::int64_t> layers;
    std::int64_t embedding = 0, head = 0;
};
// Layers of each model chunk in the model's order: chunk c of stage s is the (c x stages + s)-th. Each has at least one. The
// slowest stage takes as short as it can, then the others are as alike as they can be; where layers could be on several stages, a
// later one has them: it keeps fewer micro-batches. With several chunks it is nearly that: the best that a search finds.
std::vector<std::int64_t> balanced_layers(std::int64_t stages, std::int64_t chunks, const StageCosts& costs);
// As even as they can be.
std::vector<std::int64_t> even_layers(std::int64_t layers, std::int64_t chunks);

// As the layout wants it.
std::vector<std::int64_t> chunk_layers(const GptShape& shape);
// What a token costs in each of these chunks.
std::vector<PassFlops> chunk_costs(const GptShape& shape);

// Stages of which one needs the most memory: the first and the last one, and of those between them with the same layers the
// earliest, which keeps most micro-batches.
std::vector<std::int64_t> largest_stages(const GptShape& shape);

}  // namespace dp::trainer
