// SPDX-License-Identifier: Apache-2.0
//
// Which ranks an NCCL communicator is of, and what for: parallel/world.cpp asks open_nccl() (open.hpp) for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dp::trainer {

struct NcclGroup {
    std::string name = "trainer";             // told apart from other groups of the same members by it
    std::vector<std::uint32_t> members = {};  // ranks of the world, ascending; empty: all
    bool survives = false;                    // as Communicator::survives_deaths(), if this NCCL can do that
    bool sends = false;  // these are the stages of a pipeline, which send each other messages
};

}  // namespace dp::trainer
