// SPDX-License-Identifier: Apache-2.0
//
// The communicators of a rank, by what they are for. The training asks each of them for what it needs and does not know how the
// model is divided.
#pragma once

#include "trainer/base/communicator.hpp"

namespace dp::trainer {

// Refers to communicators, which outlive it.
struct Ranks {
    Communicator& world;  // all ranks: agreements, metrics, checkpoints
    Communicator&
        data;  // those with the same part of the model and other samples: gradients, what nodes share
    Communicator& tensor;    // those with the other parts of the same layers, and the same samples
    Communicator& pipeline;  // those with the other layers, and the same samples: the stages, in their order

    // Data parallel alone: each rank has the whole model.
    Ranks(Communicator& all)
        : world(all),
          data(all),
          tensor(alone()),
          pipeline(alone()) {}  // NOLINT: that is what a communicator says
    Ranks(Communicator& all, Communicator& of_data, Communicator& of_tensor,
          Communicator& of_pipeline = alone())
        : world(all), data(of_data), tensor(of_tensor), pipeline(of_pipeline) {}

    // How many have a part of one model.
    std::int64_t parts() const { return tensor.size() * pipeline.size(); }
    // This rank's place among them.
    std::int64_t part() const { return pipeline.rank() * tensor.size() + tensor.rank(); }
    bool divide_model() const { return parts() > 1; }
    // Sums over them, in place. All call, in the same order.
    Result<void> sum_of_parts(const Tensor& tensor_here) const {
        DP_TRY(tensor.all_reduce(tensor_here, Reduction::sum));
        return pipeline.all_reduce(tensor_here, Reduction::sum);
    }

    bool is_last_stage() const { return pipeline.rank() + 1 == pipeline.size(); }
    // Whether this rank's losses count: the last stage has them, and of ranks that see the same samples, one's do.
    bool counts() const { return tensor.rank() == 0 && is_last_stage(); }

    // Of a rank that is alone in its group. It has no state.
    static Communicator& alone() {
        static SingleCommunicator one;
        return one;
    }
};

}  // namespace dp::trainer
