// SPDX-License-Identifier: Apache-2.0
//
// What PyTorch, if there is one, says of itself and of the GPUs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "findings/finding.hpp"

namespace dp::doctor {

struct PyTorchFacts {
    enum State { works, missing, broken, does_not_answer } state = works;
    std::string problem;  // unless it works
    std::string version, cuda,
        nccl;                  // "2.9.1", "13.0", "2.28.9"; cuda and nccl are "" in a build for the CPU
    unsigned devices = 0;      // that it can use
    std::string cuda_problem;  // why it can use none
    std::vector<std::string> unsupported;  // GPUs for which it has no code: "NVIDIA B200 (sm_100)"
    double import_seconds = 0;
};

// `python`: a program or "python3". Takes as long as importing torch does.
PyTorchFacts read_pytorch(const std::string& python);
// Of the JSON that the script has written. Pure.
PyTorchFacts parse_pytorch(std::string_view text);
// `gpus`: how many the driver shows.
Findings check_pytorch(const PyTorchFacts& facts, size_t gpus);

}  // namespace dp::doctor
