// SPDX-License-Identifier: Apache-2.0
//
// Causal attention on the CPU: one block of queries at a time, so that the scores of a whole sequence are
// never in memory (Dao et al. 2022, without the tiling of keys: a row of scores fits the cache here).
#pragma once

#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

// Shapes as in device.hpp. False if oneDNN refuses a product.
bool attention(const Attention& a, In qkv, Out y, Out sums);
bool attention_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv);

}  // namespace dp::trainer::cpu
