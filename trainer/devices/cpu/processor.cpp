// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cpu/processor.hpp"

#include <dnnl.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>

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
