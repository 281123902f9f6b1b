// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs the CUDA module has kernels for. Pure; devices/cuda/cuda_device.cpp refuses the others when it
// opens one, before anything else has started.
#pragma once

#include <string>
#include <string_view>

namespace dp::trainer {

// `built`: as CMAKE_CUDA_ARCHITECTURES, "80-real 86-real 120-virtual". `capability`: 10 times the GPU's
// major number and its minor one, 86 for an A40. Machine code runs on GPUs of its major number whose minor
// one is not smaller, PTX on all that are not older (CUDA C++ Programming Guide, "Binary Compatibility" and
// "PTX Compatibility").
bool has_kernels_for(std::string_view built, int capability);

// Why a GPU without kernels is refused. `gpu`: "NVIDIA A100-SXM4-40GB, sm_80".
std::string no_kernels_text(std::string_view gpu, std::string_view built, int capability);

}  // namespace dp::trainer
