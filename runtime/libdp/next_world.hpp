// SPDX-License-Identifier: Apache-2.0
//
// The world of the next generation, for a process that goes on in it (dp_rejoin): pure.
#pragma once

#include "dp.pb.h"
#include "libdp/world.hpp"

namespace dp {

// Fails where there is no place for this process.
inline Try<WorldEnvironment> next_world(const WorldEnvironment& last, const wire::NextWorld& next) {
    const auto& plan = next.plan();
    const auto& place = plan.place();
    const uint64_t replica = uint64_t{last.sizes.tensor} * last.sizes.pipeline;
    if (next.local_rank() >= static_cast<uint32_t>(place.ranks_size()) || place.world_size() % replica != 0)
        return fail("the rendezvous daemon gave this process no place in generation " +
                    std::to_string(plan.generation()));
    WorldEnvironment world = last;
    world.rank = place.ranks(static_cast<int>(next.local_rank()));
    world.size = place.world_size();
    world.local_rank = next.local_rank();
    world.local_size = static_cast<uint32_t>(place.ranks_size());
    world.node_rank = place.node_rank();
    world.nodes = place.nodes();
    world.generation = plan.generation();
    world.sizes = ModelParallel::of_world(world.size, last.sizes.tensor, last.sizes.pipeline);
    world.master_addr = plan.master_addr();
    world.master_port = static_cast<uint16_t>(plan.master_port());
    world.node_addr = next.node_addr();
    return world;
}

}  // namespace dp
