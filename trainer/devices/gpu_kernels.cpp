// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/gpu_kernels.hpp"

#include <charconv>

#include "base/text.hpp"

namespace dp::trainer {

bool has_kernels_for(std::string_view built, int capability) {
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

std::string no_kernels_text(std::string_view gpu, std::string_view built, int capability) {
    constexpr int kOldest = 80;  // bf16 in its matrix units
    if (capability < kOldest)
        return std::string(gpu) + " is too old: the trainer needs an A100 (sm_80) or a newer GPU";
    return "this build has no kernels for " + std::string(gpu) + ", only for " + std::string(built) +
           "; configure it with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(capability);
}

}  // namespace dp::trainer
