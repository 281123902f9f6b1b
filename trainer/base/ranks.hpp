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
    Communicator& tensor;  // those with the other parts of the model, and the same samples

    // Data parallel alone: each rank has the whole model.
    Ranks(Communicator& all)
        : world(all), data(all), tensor(alone()) {}  // NOLINT: that is what a communicator says
    Ranks(Communicator& all, Communicator& of_data, Communicator& of_tensor)
        : world(all), data(of_data), tensor(of_tensor) {}

    // Whether this rank's losses count: of ranks that see the same samples, one's do.
    bool counts() const { return tensor.rank() == 0; }

    // Of a rank that is alone in its group. It has no state.
    static Communicator& alone() {
        static SingleCommunicator one;
        return one;
    }
};

}  // namespace dp::trainer
