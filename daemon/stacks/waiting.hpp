// SPDX-License-Identifier: Apache-2.0
//
// What a stack says of a rank that does not move: whether it waits for other ranks, and where it is, in words. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "stacks/stack.hpp"

namespace dp::stacks {

struct Doing {
    bool waits_for_others = false;
    bool waits_for_own_thread = false;  // which may well be working
    bool is_python_alone = false;       // the interpreter itself runs
    std::string where;                  // "load_batch (train.py:88)"
    uint64_t place = 0;  // equal for stacks with equal functions and lines, of Python if there are such
};

Doing doing_of(const ThreadStack& thread);

// Whether it is one of the functions by which ranks wait for each other.
bool waits_for_others(const Frame& frame);

}  // namespace dp::stacks
