// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs the CUDA module has kernels for. Pure; devices/cuda/cuda_device.cpp refuses the others when it
// opens one, before anything else has started.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "base/text.hpp"

namespace dp::trainer {

// `built`: as CMAKE_CUDA_ARCHITECTURES, "80-real 86-real 120-virtual". `capability`: 10 times the GPU's
// major number and its minor one, 86 for an A40. Machine code runs on GPUs of its major number whose minor
// one is not smaller, PTX on all that are not older (CUDA C++ Programming Guide, "Binary Compatibility" and
// "PTX Compatibility").
inline bool has_kernels_for(std::string_view built, int capability) {
    for (const std::string_view one : split(built, ' ')) {
        int number = 0;
        const auto [rest, error] = std::from_chars(one.data(), one.data() + one.size(), number);
        const std::string_view kind(rest, static_cast<std::size_t>(one.data() + one.size() - rest));
        if (error != std::errc() || capability < number) continue;
        // "90" is both; architecture-specific code ("90a") runs on no other.
        if (kind.starts_with('a') ? capability == number : kind != "-real" || capability / 10 == number / 10)
            return true;
    }
    return false;
}

// Why a GPU without kernels is refused. `gpu`: "NVIDIA A100-SXM4-40GB, sm_80".
inline std::string no_kernels_text(std::string_view gpu, std::string_view built, int capability) {
    constexpr int kOldest = 80;  // bf16 in its matrix units
    std::string text;            // not by +, of which GCC 12 has false warnings at -O0 and -O1
    if (capability < kOldest)
        return text.append(gpu).append(" is too old: the trainer needs an A100 (sm_80) or a newer GPU");
    return text.append("this build has no kernels for ")
        .append(gpu)
        .append(", only for ")
        .append(built)
        .append("; configure it with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(capability));
}

}  // namespace dp::trainer
