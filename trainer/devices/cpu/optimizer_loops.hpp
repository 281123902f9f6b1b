// SPDX-License-Identifier: Apache-2.0
//
// The optimizers' loops, which must come to the same bits on all ranks, whatever CPUs they run on: each product is rounded before it
// is added (CMakeLists.txt compiles the source so), in vectors of any width.
#pragma once

#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

// Of parameters p, gradients g and the velocity u.
void sgd_run(float* __restrict p, const float* __restrict g, float* __restrict u, std::int64_t count,
             const SgdStep& step, float factor);
// Of both moments.
void adam_run(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v,
              std::int64_t count, const AdamStep& step, float factor);

}  // namespace dp::trainer::cpu
