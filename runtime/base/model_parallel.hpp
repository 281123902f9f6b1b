// SPDX-License-Identifier: Apache-2.0
//
// A rank's place in a world divided by tensor, data and pipeline parallelism: pure arithmetic in
// Megatron-LM's order (megatron/core/parallel_state.py: tensor varies fastest, then data, then pipeline). The
// plugin uses it for the environment, libdp for the groups.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dp {

enum class Dimension { tensor, data, pipeline };

struct ModelParallel {
    uint32_t tensor = 1;
    uint32_t data = 1;
    uint32_t pipeline = 1;
    bool operator==(const ModelParallel&) const = default;

    // `world` is divisible by tensor * pipeline (judge_step of options.hpp checks); data is the quotient.
    static ModelParallel of_world(uint32_t world, uint32_t tensor, uint32_t pipeline) {
        return {tensor, world / (tensor * pipeline), pipeline};
    }

    uint32_t size(Dimension d) const {
        return d == Dimension::tensor ? tensor : d == Dimension::data ? data : pipeline;
    }
    // The distance in the world between neighbours in that dimension.
    uint32_t stride(Dimension d) const {
        return d == Dimension::tensor ? 1 : d == Dimension::data ? tensor : tensor * data;
    }
    // The rank's place in its group of that dimension.
    uint32_t rank_in(Dimension d, uint32_t rank) const { return rank / stride(d) % size(d); }
    // The lowest world rank of its group.
    uint32_t first_of(Dimension d, uint32_t rank) const { return rank - rank_in(d, rank) * stride(d); }
    // World ranks of the rank's group, ascending.
    std::vector<uint32_t> group_of(Dimension d, uint32_t rank) const {
        std::vector<uint32_t> members;
        const uint32_t first = first_of(d, rank);
        for (uint32_t i = 0; i < size(d); ++i) members.push_back(first + i * stride(d));
        return members;
    }
};

// The line that Megatron-LM's users look for in a log.
inline std::string model_parallel_line(uint32_t world, const ModelParallel& sizes) {
    return "using world size: " + std::to_string(world) +
           ", data-parallel-size: " + std::to_string(sizes.data) +
           ", tensor-model-parallel size: " + std::to_string(sizes.tensor) +
           ", pipeline-model-parallel size: " + std::to_string(sizes.pipeline);
}

}  // namespace dp
