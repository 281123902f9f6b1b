// SPDX-License-Identifier: Apache-2.0
//
// What NVIDIA's management library (libnvidia-ml) knows about this node's GPUs and MIG instances beyond
// /proc: UUIDs, utilisation, memory. Opened at run time, if the node has it. For dpctl only: nothing that
// runs in every step loads a library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"

namespace dp {

struct NvmlDevice {
    std::string file;        // in /dev, as inventories name it
    std::string uuid;        // "GPU-..." or "MIG-..."
    void* handle = nullptr;  // of the Nvml that told it, and as long as that
};

struct NvmlUse {
    // The fraction of the last moments in which a kernel ran or memory was accessed; nullopt for
    // a MIG instance.
    std::optional<uint32_t> busy_percent;
    std::optional<uint32_t> memory_busy_percent;
    uint64_t memory_used = 0;  // bytes
    uint64_t memory_total = 0;
};

class Nvml {
 public:
    // nullopt if the library is not installed.
    static Try<std::optional<Nvml>> open(const std::string& library = "libnvidia-ml.so.1");
    Nvml(Nvml&& other) noexcept;
    Nvml& operator=(Nvml&& other) noexcept;
    ~Nvml();

    // The devices that this process may use: GPUs, or the instances of a GPU in MIG mode. `root`: the folder
    // with the /proc that names the instances' files.
    Try<std::vector<NvmlDevice>> devices(const std::string& root = "") const;
    Try<NvmlUse> use_of(const NvmlDevice& device) const;

 private:
    struct Library;
    explicit Nvml(std::unique_ptr<Library> library);
    std::unique_ptr<Library> library_;
};

}  // namespace dp
