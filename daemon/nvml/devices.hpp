// SPDX-License-Identifier: Apache-2.0
//
// What NVIDIA's management library (libnvidia-ml) knows about this node's GPUs and MIG instances beyond
// /proc: UUIDs, utilisation, memory. For dpctl only: the daemon, which runs in every step, asks `dpctl gpu-use`
// (loop/gpu_probe.hpp).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "dp.pb.h"
#include "tiles/inventory.hpp"

namespace dp {

namespace nvml {
class Library;
}

struct NvmlUse {
    // The fraction of the last moments in which a kernel ran; nullopt for a MIG instance.
    std::optional<uint32_t> busy_percent;
    uint64_t memory_used = 0;  // bytes
    uint64_t memory_total = 0;
    // Of a whole GPU.
    std::vector<pid_t> processes;  // that compute on it, in this PID namespace
    std::optional<double>
        clock_lost;  // how much of its highest clock its processors lack, 0 to 1; nothing while it has little to do
    std::optional<uint32_t> clock_reasons;  // record/clock_reasons.hpp
    std::optional<uint32_t> watts, celsius;
    std::optional<uint32_t> sm_mhz;     // its processors' clock
    std::optional<uint64_t> lost_bits;  // uncorrected memory errors since the driver was loaded
    std::string bus;                    // PCI address: "0000:17:00"; "": not known
};

// Of a GPU that was so busy in percent, by nvmlClocksEventReasons and its clocks in MHz. Pure.
std::optional<double> clock_lost(uint32_t busy_percent, uint64_t reasons, unsigned now, unsigned most);

struct NvmlDevice {
    std::string file;            // in /dev, as inventories name it
    std::string uuid;            // "GPU-..." or "MIG-..."
    std::optional<NvmlUse> use;  // nullopt if the library does not say
};

// The devices that this process may use: GPUs, or the instances of a GPU in MIG mode; none if the library is
// not installed. `root`: the folder with the /proc that names the instances' files. `skipped` gets a line for each GPU that does not
// answer, which does not hide the others.
Try<std::vector<NvmlDevice>> nvml_devices(
    const std::string& root = "", const std::string& library = "libnvidia-ml.so.1",
    const std::function<void(const std::string& why)>& skipped = [](const std::string&) {});

struct GpuUseOptions {
    std::string node;  // this one's name in tiles.conf
    std::string conf = kTilesConf;
    std::chrono::milliseconds every{0};  // of dpctl gpu-use: again and again; 0: once
};

// The use of this node's tiles whose devices this process may open, look by look. The library is loaded once: its start takes long where
// nothing else keeps the driver loaded.
class GpuUse {
 public:
    static Try<GpuUse> open(const GpuUseOptions& options, const std::string& root = "",
                            const std::string& library = "libnvidia-ml.so.1");
    GpuUse(GpuUse&&) noexcept;
    ~GpuUse();

    // Whether the node has NVIDIA GPUs and their library.
    bool is_there() const { return nvml_ != nullptr; }
    // Who looks once is also told of XID events, if this user may read the kernel's log.
    // Sets only `gpus`, which is empty if nothing is there, and where one of them fails, `problem`. A GPU that is several tiles
    // is reported for each.
    Try<wire::NodeUsage> look() const;

 private:
    explicit GpuUse(std::string root);
    std::string root_;
    bool reads_log_ = true;  // who looks every second does not
    TileInventory inventory_;
    std::unique_ptr<nvml::Library> nvml_;
};

}  // namespace dp
