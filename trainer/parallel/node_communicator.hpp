// SPDX-License-Identifier: Apache-2.0
//
// The communicator between CPUs where nodes have several ranks: the gradients lie in memory that a node's
// ranks share. Of a sum each rank takes a part: it adds up its neighbours', then that with its like on the
// other nodes. What all ranks have alike, sums, parameters and the optimizer's state, each node has once.
// parallel/world.cpp asks for it.
#ifndef TRAINER_PARALLEL_NODE_COMMUNICATOR_HPP
#define TRAINER_PARALLEL_NODE_COMMUNICATOR_HPP

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/parallel/between_nodes.hpp"

namespace dp::trainer {

// What it needs of the world. The tests have one of threads.
struct NodeSetting {
    std::int64_t node = 0;  // this rank's; a number that its neighbours have, too, and no other rank
    // Connects these ranks of the world, one of each node, which all call; a new mesh for each name. As long
    // as there is a communicator.
    std::function<Result<std::shared_ptr<::gloo::Context>>(const std::string& name,
                                                           std::vector<std::uint32_t> ranks)>
        connect;
    // Calls what it is given, once the world is being ended, for as long as its result lives. May be empty.
    std::function<std::shared_ptr<void>(std::function<void()>)> on_end;
    std::string unwanted;  // why this rank does not want to share memory; "" where it does
    // A collective waits for the slowest rank, as long as Gloo's do. Who dies is noticed at once.
    std::chrono::milliseconds patience = std::chrono::minutes(30);
};

struct SharedNodes {
    std::unique_ptr<Communicator> communicator;
    std::string why_not;  // what kept the ranks from sharing memory, the same on all; "" where they do, and
                          // where each has a node of its own
};

// `world`, or what is faster and has it for all that is not summed in shared memory: sums, by start_sum(), of
// f32 tensors that `device` has made by make_to_sum() since. Every rank calls. The device must outlive the
// result.
Result<SharedNodes> share_nodes(std::unique_ptr<Communicator> world, Device& device,
                                const NodeSetting& setting);

}  // namespace dp::trainer

#endif
