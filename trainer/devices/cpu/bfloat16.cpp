// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cpu/bfloat16.hpp"

#include <cstring>

#include "trainer/base/bfloat16.hpp"
#include "trainer/devices/cpu/parallel.hpp"

namespace dp::trainer::cpu {
namespace {

DP_WIDE_VECTORS void widen(const Bfloat16* from, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}
DP_WIDE_VECTORS void narrow(const float* from, std::int64_t count, Bfloat16* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_bfloat16(from[i]);
}

}  // namespace

void convert(const Tensor& from, const Tensor& to) {
    if (from.type() == to.type()) {
        std::memcpy(to.data<void>(), from.data<void>(), from.bytes());
        return;
    }
    const bool widens = to.type() == Type::f32;
    for_each_part(from.elements(), kWorthAThread, [&](std::int64_t first, std::int64_t last) {
        if (widens) {
            widen(from.data<Bfloat16>() + first, last - first, to.data<float>() + first);
        } else {
            narrow(from.data<float>() + first, last - first, to.data<Bfloat16>() + first);
        }
    });
}

}  // namespace dp::trainer::cpu
