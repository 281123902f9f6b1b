// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cpu/optimizer_loops.hpp"

#include <cmath>

namespace dp::trainer::cpu {

// Elements do not meet, so wider vectors round each number as narrower ones do. AVX2 is without FMA, another extension.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define DP_WIDE_SAME_BITS __attribute__((target_clones("avx2", "default")))
#else
#define DP_WIDE_SAME_BITS
#endif

DP_WIDE_SAME_BITS void sgd_run(float* __restrict p, const float* __restrict g, float* __restrict u,
                               std::int64_t count, const SgdStep& step, float factor) {
    const float momentum = step.momentum, decay = step.decay, rate = step.rate;
    for (std::int64_t i = 0; i < count; ++i) {
        u[i] = momentum * u[i] + factor * g[i] + decay * p[i];
        p[i] -= rate * u[i];
    }
}

DP_WIDE_SAME_BITS void adam_run(float* __restrict p, const float* __restrict g, float* __restrict m,
                                float* __restrict v, std::int64_t count, const AdamStep& step, float factor) {
    const float beta1 = step.beta1, beta2 = step.beta2, keep = step.keep, rate = step.rate;
    const float root_scale = step.root_scale, epsilon = step.epsilon;
    for (std::int64_t i = 0; i < count; ++i) {
        const float gradient = factor * g[i];
        m[i] = beta1 * m[i] + (1 - beta1) * gradient;
        v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        p[i] = keep * p[i] - rate * m[i] / (std::sqrt(v[i]) * root_scale + epsilon);
    }
}

}  // namespace dp::trainer::cpu
