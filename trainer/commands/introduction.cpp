// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/introduction.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "trainer/base/standard_streams.hpp"

namespace dp::trainer {

void introduce(Report& report, const dp_world& world, const ModelParallel& parallel, LogStyle style) {
    if (style != LogStyle::pytorch) {
        report.line(fmt::format("MASTER_ADDR={} MASTER_PORT={} WORLD_SIZE={} NODES={}", world.master_addr,
                                world.master_port, world.size, world.nodes));
        if (style == LogStyle::megatron) report.line(model_parallel_line(world.size, parallel));
        return;
    }
    report.line(fmt::format("MASTER_ADDR: {}\nMASTER_PORT: {}\nWORLD_SIZE: {}\nNODE_RANK: {}",
                            world.master_addr, world.master_port, world.size, world.node_rank));
    print_if_possible(stdout, fmt::format("Rank {} on Node {}: Initializing process group.\n", world.rank,
                                          world.node_rank));
    std::fflush(stdout);
}

}  // namespace dp::trainer
