// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cpu/processor.hpp"

#include <dnnl.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>

#include "trainer/devices/cpu/bf16_products.hpp"

namespace dp::trainer::cpu {

std::string processor_name(const std::filesystem::path& proc) {
    std::ifstream in(proc / "cpuinfo");
    for (std::string line; std::getline(in, line);) {
        if (!line.starts_with("model name")) continue;
        const auto begin = line.find_first_not_of(" \t", line.find(':') + 1);
        if (begin != std::string::npos) return line.substr(begin);
    }
    utsname names{};
    return uname(&names) == 0 ? names.machine : "unknown";
}

std::int64_t onednn_bytes_of_thread() {
    const unsigned avx512 = dnnl_cpu_isa_avx512_core;  // a set of bits
    return ((dnnl_get_effective_cpu_isa() & avx512) == avx512 ? 2 : 6) << 20;
}

std::string onednn_version() {
    const auto* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}, instructions {:#x}", version->major, version->minor, version->patch,
                       static_cast<unsigned>(dnnl_get_effective_cpu_isa()));
}

}  // namespace dp::trainer::cpu

namespace dp::trainer {

Bf16Products bf16_products_with(unsigned instructions) {
    const unsigned bf16 = dnnl_cpu_isa_avx512_core_bf16;  // a set of bits; AMX's has them, too
    return (instructions & bf16) == bf16 ? Bf16Products::native : Bf16Products::on_copies;
}

Bf16Products bf16_products_here() {
    return bf16_products_with(static_cast<unsigned>(dnnl_get_effective_cpu_isa()));
}

}  // namespace dp::trainer
