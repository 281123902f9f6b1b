// SPDX-License-Identifier: Apache-2.0
//
// The types of tensors as NCCL names them. Pure; nccl_communicator.cpp asks.
#pragma once

#include <nccl.h>

#include <optional>

#include "trainer/base/tensor.hpp"

namespace dp::trainer {

// For an all-reduce, as Communicator promises it; nullopt for other types, which NCCL would add as numbers of another size.
constexpr std::optional<ncclDataType_t> type_to_reduce(Type type) {
    switch (type) {
        case Type::f32:
            return ncclFloat32;
        case Type::f64:
            return ncclFloat64;
        case Type::i64:
            return ncclInt64;
        case Type::bf16:
            return ncclBfloat16;  // it may round at each rank
        default:
            return std::nullopt;
    }
}

}  // namespace dp::trainer
