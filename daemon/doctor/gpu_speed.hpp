// SPDX-License-Identifier: Apache-2.0
//
// How fast this process's NVIDIA GPUs multiply matrices and copy memory, and whether they do so without mistakes.
#pragma once

#include <string>
#include <vector>

#include "findings/finding.hpp"

namespace dp::doctor {

struct GpuSpeed {
    std::string name;          // its PCI bus id, as nvidia-smi shows it; "CUDA": of all
    bool is_broken = false;    // it, or CUDA on this machine; else it may be that another program uses it
    std::string problem = {};  // why it could not be measured, or what it does wrong
    double multiplies =
        0;  // bf16 flop/s of its tensor cores; 0: not measured, or older than compute capability 8.0
    double copies = 0;  // bytes per second, read and written; 0: not measured
};

// Takes some 2 seconds, all GPUs at once, so that they share power and cooling; by the driver alone (libcuda), in a process of its own.
// `devices`: as in CUDA_VISIBLE_DEVICES; "all". None if there is no driver, or no GPU and
// none was named.
std::vector<GpuSpeed> measure_gpus(const std::string& devices, const std::string& library = "libcuda.so.1");

// One check a GPU. Slow is what does less than three quarters of this machine's median.
Findings check_gpu_speeds(const std::vector<GpuSpeed>& gpus);

}  // namespace dp::doctor
