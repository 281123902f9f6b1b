// SPDX-License-Identifier: Apache-2.0
//
// Loops over f32 or bf16 tensors: numbers are read to float, computed in float, and rounded once, when they
// are written. So a loop gives on bf16 tensors what it gives on float32 copies of them.
#pragma once

#include "trainer/base/bfloat16.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

// By reference: a number of its own in a loop would be an object, which `omp simd` does not vectorise.
inline float wide(const float& number) {
    return number;
}
inline float wide(const Bfloat16& number) {
    return to_float(number);
}
inline void store(float value, float& to) {
    to = value;
}
inline void store(float value, Bfloat16& to) {
    to = to_bfloat16(value);
}

// Calls work(a number of the tensor's type): float or Bfloat16, of which only the type counts.
template <typename Work>
void in_type_of(In tensor, Work work) {
    if (tensor.type() == Type::bf16) {
        work(Bfloat16{});
    } else {
        work(0.0f);
    }
}

}  // namespace dp::trainer::cpu
