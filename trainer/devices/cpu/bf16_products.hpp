// SPDX-License-Identifier: Apache-2.0
//
// How the CPU multiplies bf16. cpu.cpp goes by it; tests open either kind of device.
#pragma once

#include <memory>

#include "trainer/devices/cpu/cpu.hpp"

namespace dp::trainer {

// Linear layers and convolutions on bf16 tensors: on the tensors as they are, or on float32 copies of them.
enum class Bf16Products { native, on_copies };

// Native where the processor multiplies bf16 (AMX, AVX512-BF16): `instructions` as dnnl_get_effective_cpu_isa().
Bf16Products bf16_products_with(unsigned instructions);
// On this processor.
Bf16Products bf16_products_here();

// As open_cpu(), which takes bf16_products_here().
std::unique_ptr<Device> open_cpu_with(Bf16Products bf16, int threads, OperationLog* log = nullptr);

}  // namespace dp::trainer
