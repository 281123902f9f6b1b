// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's driver and GPUs: what is broken, slowed down or set up in a way that a training trips over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "findings/finding.hpp"
#include "nvml/library.hpp"
#include "nvml/xid_events.hpp"

namespace dp::doctor {

// What is empty, the driver or the GPU does not tell.
struct Gpu {
    unsigned number = 0;                            // as nvidia-smi counts
    std::string name;                               // "NVIDIA H100 80GB HBM3"
    std::string problem;                            // why it cannot be asked
    std::optional<uint64_t> lost_bits;              // uncorrected ECC errors since the driver was loaded
    bool is_remap_pending = false;                  // broken memory will be replaced at the next reset
    bool has_remap_failed = false;                  // no spare memory is left
    uint64_t slowed_by = 0;                         // nvmlClocksEventReasons
    std::optional<unsigned> temperature;            // degrees Celsius
    std::optional<unsigned> pcie_width, pcie_most;  // the link's, and what both ends can do
    unsigned links_up = 0, links_down = 0;          // NVLink
    bool is_fabric_down = false;                    // NVSwitch's
    unsigned compute_mode = 0;
    std::optional<bool> is_persistent;
    bool is_mig = false;
};

struct GpuFacts {
    bool has_device = false;  // /dev/nvidia0 or an adapter of NVIDIA on the PCI bus
    std::string problem;      // why the library cannot be used
    std::string driver;       // "580.65.06"
    int cuda = 0;             // the newest CUDA that the driver runs: 13000
    std::vector<Gpu> gpus;
    std::vector<std::string> without_peer_access;     // pairs: "0-1"
    std::optional<std::vector<nvml::XidEvent>> xids;  // since the boot; nullopt: the log is not readable
};

GpuFacts read_gpus(const std::string& root, const std::string& library = nvml::kLibrary);
Findings check_gpus(const GpuFacts& facts);

// 13000 → "13.0".
std::string cuda_version(int number);

}  // namespace dp::doctor
