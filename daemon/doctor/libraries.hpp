// SPDX-License-Identifier: Apache-2.0
//
// The libraries that a program would load, or without one those that the dynamic linker finds, and their versions against each other
// and the driver's.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "findings/finding.hpp"

namespace dp::doctor {

struct LibraryFacts {
    std::string program;                       // its path; "": none was given
    std::string problem;                       // why it cannot be started
    std::string interpreter;                   // if it is a script
    std::vector<std::string> missing;          // libraries that the dynamic linker does not find
    std::map<std::string, std::string> found;  // "NCCL" → "2.28.9, /usr/lib/libnccl.so.2"
    int cuda_runtime = 0, cudnn_cuda = 0;      // 13000; what cuDNN was built with; 0: not there
};

// `program`: its name or path, as a shell would find it.
LibraryFacts read_libraries(const std::string& program);
// `driver_cuda`: the newest CUDA that the driver runs; 0: no driver.
Findings check_libraries(const LibraryFacts& facts, int driver_cuda);

// What ldd says: paths by soname, "" for one that is not found. Pure.
std::map<std::string, std::string> parse_ldd(std::string_view text);

}  // namespace dp::doctor
