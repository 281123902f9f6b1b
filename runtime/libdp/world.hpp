// SPDX-License-Identifier: Apache-2.0
//
// From a rank's environment to its world: pure, and the reverse of common/task_environment.cpp.
#pragma once

#include <chrono>

#include "base/failure.hpp"
#include "base/model_parallel.hpp"
#include "common/environment.hpp"
#include "dp/dp.h"

namespace dp {

struct WorldEnvironment {
    std::string socket;  // abstract name without '@'
    uint32_t rank = 0;
    uint32_t size = 0;
    uint32_t local_rank = 0;
    uint32_t local_size = 0;
    uint32_t node_rank = 0;
    uint32_t nodes = 0;
    uint32_t generation = 0;
    ModelParallel sizes;
    std::string master_addr;
    uint16_t master_port = 0;
    std::string node_addr;
    std::chrono::seconds timeout{};
    pid_t daemon = 0;  // this node's; 0: not known
};

// Fails with the variable's name and value.
Try<WorldEnvironment> world_from_environment(const GetVariable& get);

}  // namespace dp
