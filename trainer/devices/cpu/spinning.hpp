// SPDX-License-Identifier: Apache-2.0
//
// How long the CPU device's threads spin for each other before they sleep. libgomp's own bound is some
// milliseconds: beside another busy process a step then takes 11 to 14 times as long. main() calls it.
#pragma once

namespace dp::trainer::cpu {

// Turns of libgomp's loop, about 0.1 ms. On 2 CPUs 5000 fall under a third of the free speed beside a busy
// process (ffn), and 3000 lose a tenth of it without one.
inline constexpr const char* kSpins = "4000";

// Pure: whether to bound them. What the user set (null: not set) wins; a single thread waits for no other.
bool must_bound_spinning(int threads, const char* wait_policy, const char* spin_count);

// Starts this program again, once, with GOMP_SPINCOUNT: libgomp reads it when it is loaded, before main().
// Returns where there is nothing to do, or no way to do it. Before anything else has begun.
void bound_spinning(int threads, char** arguments);

}  // namespace dp::trainer::cpu
