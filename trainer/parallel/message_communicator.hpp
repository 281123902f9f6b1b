// SPDX-License-Identifier: Apache-2.0
//
// The communicator of a pipeline's stages on CPUs (world.cpp opens it): messages between ranks of a node go through memory that
// they share, everything else through another communicator.
#pragma once

#include <memory>

#include "trainer/parallel/node_communicator.hpp"

namespace dp::trainer {

// Returns `world`, or a communicator that sends faster on a node. `world` has to be connected if there are several nodes: not all
// ranks may need it. Every rank calls.
Result<SharedNodes> share_messages(std::unique_ptr<Communicator> world, const NodeSetting& setting);

}  // namespace dp::trainer
