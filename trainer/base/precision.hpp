// SPDX-License-Identifier: Apache-2.0
//
// --precision: the type of a model's activations. Parameters are always learnt in fp32 (see ParameterSet).
#pragma once

#include <string_view>

#include "trainer/base/tensor.hpp"

namespace dp::trainer {

enum class Precision { fp32, bf16 };

constexpr std::string_view name_of(Precision precision) {
    return precision == Precision::bf16 ? "bf16" : "fp32";
}

constexpr Type type_of(Precision precision) {
    return precision == Precision::bf16 ? Type::bf16 : Type::f32;
}

}  // namespace dp::trainer
