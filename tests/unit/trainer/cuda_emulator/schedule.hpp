// SPDX-License-Identifier: Apache-2.0
//
// The order in which the threads of a block that could run do run, and a kernel's blocks: one after another, or several at once.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

namespace dp::cuda_emulator {

// By number, backward, or shuffled. Threads take turns until they wait for others, so that all warps advance alike. Greedy: a warp
// chosen at random advances as far as it can, to a barrier of the block, before another one does. A kernel whose threads read what
// others wrote without a barrier between is right in some of these orders at most.
// Interleaved: several blocks are there at once, whose greedy warps have turns of random lengths, and may lose them at a barrier, an
// exchange, an atomic or a fence. A kernel whose blocks rely on one another's order is right in some seeds at most.
struct Order {
    bool backward = false;
    std::optional<std::uint64_t> seed;
    bool greedy = false;
    bool interleaved = false;  // and greedy

    bool operator==(const Order&) const = default;
};

// forward, backward, a seed, greedy:SEED or interleaved:SEED.
std::optional<Order> order_named(std::string_view name);

// The numbers 0 ... count - 1 in the order in which they have their turns.
std::vector<unsigned> turns(const Order& order, std::mt19937_64& random, unsigned count);

}  // namespace dp::cuda_emulator
