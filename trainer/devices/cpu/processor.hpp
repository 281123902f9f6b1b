// SPDX-License-Identifier: Apache-2.0
//
// Identifies the processor and oneDNN, on which the fastest choices depend. Called by cpu.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace dp::trainer::cpu {

// "Intel(R) Xeon(R) Gold 6430" if the kernel tells (`proc`), else the machine's kind: "aarch64".
std::string processor_name(const std::filesystem::path& proc = "/proc");

// What oneDNN allocates for each thread besides its scratch. Without AVX-512 its matrix products copy their
// factors into buffers (measured with AVX2: tests/cluster/test_memory.py).
std::int64_t onednn_bytes_of_thread();

// "oneDNN 2.7.2, instructions 0x1f": the instruction sets that it uses on this processor.
std::string onednn_version();

}  // namespace dp::trainer::cpu
