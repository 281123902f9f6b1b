// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpus.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "doctor/apart.hpp"
#include "tiles/sysfs.hpp"

namespace dp::doctor {
namespace {

using namespace nvml;

// nvml.h of CUDA 12.
constexpr int kGpuSensor = 0;        // nvmlTemperatureSensors_t
constexpr int kPeerRead = 0;         // nvmlGpuP2PCapsIndex_t
constexpr unsigned kMostLinks = 18;  // NVML_NVLINK_MAX_LINKS
constexpr size_t kNameSize = 96;
constexpr std::chrono::seconds kDriverPatience{20};
enum : unsigned { kSharedByAll = 0, kProhibited = 2, kOneProcess = 3 };  // nvmlComputeMode_t
enum : unsigned {
    kFabricNotStarted = 1,
    kFabricInProgress = 2,
    kFabricCompleted = 3
};                   // nvmlGpuFabricState_t
struct FabricInfo {  // nvmlGpuFabricInfo_t
    std::array<unsigned char, 16> cluster{};
    int status = 0;
    unsigned clique = 0;
    unsigned char state = 0;
};

template <typename Value>
std::optional<Value> ask(const nvml::Library& library, const char* function, Handle gpu) {
    Value value{};
    return library.call(function, gpu, &value) == kSuccess ? std::optional(value) : std::nullopt;
}

Gpu read_gpu(const nvml::Library& library, Handle handle, unsigned number) {
    Gpu gpu;
    gpu.number = number;
    std::array<char, kNameSize> name{};
    if (const int result = library.call("nvmlDeviceGetName", handle, name.data(), unsigned{kNameSize - 1});
        result == kSuccess)
        gpu.name = printable(name.data(), name.size());
    else
        gpu.problem = library.failed("nvmlDeviceGetName", result).value().message;
    unsigned long long errors = 0;
    if (library.call("nvmlDeviceGetTotalEccErrors", handle, kUncorrected, kSinceLoaded, &errors) == kSuccess)
        gpu.lost_bits = errors;
    unsigned corrected = 0, uncorrected = 0, is_pending = 0, has_failed = 0;
    if (library.call("nvmlDeviceGetRemappedRows", handle, &corrected, &uncorrected, &is_pending,
                     &has_failed) == kSuccess) {
        gpu.is_remap_pending = is_pending != 0;
        gpu.has_remap_failed = has_failed != 0;
    } else {
        gpu.is_remap_pending =
            ask<int>(library, "nvmlDeviceGetRetiredPagesPendingStatus", handle).value_or(0) != 0;
    }
    gpu.slowed_by = ask<unsigned long long>(library, kSlowedBy, handle).value_or(0);
    unsigned degrees = 0;
    if (library.call("nvmlDeviceGetTemperature", handle, kGpuSensor, &degrees) == kSuccess)
        gpu.temperature = degrees;
    gpu.pcie_width = ask<unsigned>(library, "nvmlDeviceGetCurrPcieLinkWidth", handle);
    gpu.pcie_most = ask<unsigned>(library, "nvmlDeviceGetMaxPcieLinkWidth", handle);
    for (unsigned link = 0; link < kMostLinks; ++link) {
        int is_active = 0;
        if (library.call("nvmlDeviceGetNvLinkState", handle, link, &is_active) != kSuccess) continue;
        ++(is_active ? gpu.links_up : gpu.links_down);
    }
    if (const auto info = ask<FabricInfo>(library, "nvmlDeviceGetGpuFabricInfo", handle))
        gpu.is_fabric_down = info->state == kFabricNotStarted || info->state == kFabricInProgress ||
                             (info->state == kFabricCompleted && info->status != kSuccess);
    gpu.compute_mode = ask<unsigned>(library, "nvmlDeviceGetComputeMode", handle).value_or(kSharedByAll);
    if (const auto mode = ask<unsigned>(library, "nvmlDeviceGetPersistenceMode", handle))
        gpu.is_persistent = *mode != 0;
    unsigned mode = 0, next_mode = 0;
    if (library.call("nvmlDeviceGetMigMode", handle, &mode, &next_mode) == kSuccess) gpu.is_mig = mode != 0;
    return gpu;
}

bool has_nvidia_device(const std::string& root) {
    constexpr std::string_view kVendor = "0x10de";
    if (access((root + "/dev/nvidiactl").c_str(), F_OK) == 0) return true;
    const std::string devices = root + "/sys/bus/pci/devices";
    for (const auto& one : list_folder(devices).value_or(std::vector<std::string>())) {
        const std::string kind = read_word(devices + "/" + one + "/class").value_or("");
        // A display controller (0x03).
        if (kind.starts_with("0x03") && read_word(devices + "/" + one + "/vendor").value_or("") == kVendor)
            return true;
    }
    return false;
}

void ask_library(GpuFacts& facts, const std::string& name) {
    const nvml::Library library(name);
    if (!library.is_there()) {
        facts.problem = name + " is not installed";
        return;
    }
    unsigned count = 0;
    const auto begun = library.require("nvmlInit_v2");
    const auto counted = begun ? library.require("nvmlDeviceGetCount_v2", &count) : begun;
    if (!counted) {
        facts.problem = counted.error().message;
        return;
    }
    facts.has_device |= count > 0;
    std::array<char, 80> driver{};
    if (library.call("nvmlSystemGetDriverVersion", driver.data(), unsigned{driver.size() - 1}) == kSuccess)
        facts.driver = printable(driver.data(), driver.size());
    library.call("nvmlSystemGetCudaDriverVersion_v2", &facts.cuda);
    std::vector<std::pair<unsigned, Handle>> usable;
    for (unsigned i = 0; i < count; ++i) {
        Handle gpu = nullptr;
        const int result = library.call("nvmlDeviceGetHandleByIndex_v2", i, &gpu);
        if (result == nvml::kNoPermission) continue;  // another job's
        if (result == kSuccess) {
            usable.emplace_back(i, gpu);
            facts.gpus.push_back(read_gpu(library, gpu, i));
        } else {
            Gpu& lost = facts.gpus.emplace_back();
            lost.number = i;
            lost.problem = library.failed("nvmlDeviceGetHandleByIndex_v2", result).value().message;
        }
    }
    for (auto one = usable.begin(); one != usable.end(); ++one)
        for (auto other = std::next(one); other != usable.end(); ++other) {
            int status = 0;
            if (library.call("nvmlDeviceGetP2PStatus", one->second, other->second, kPeerRead, &status) ==
                    kSuccess &&
                status != 0)
                facts.without_peer_access.push_back(fmt::format("{}-{}", one->first, other->first));
        }
}

Finding check_memory_of(const Gpu& gpu, const std::string& check, const std::string& seen) {
    const std::string reset = fmt::format(
        "nvidia-smi --gpu-reset -i {}, when nobody uses it; nvidia-smi -q -i {} -d ECC,ROW_REMAPPER",
        gpu.number, gpu.number);
    if (gpu.has_remap_failed)
        return fault(check, seen + ", memory has failed and no spare rows are left",
                     "programs on it end with CUDA errors, or compute wrongly",
                     "take the node out of service and have the GPU replaced");
    if (gpu.is_remap_pending)
        return fault(check, seen + ", rows of its memory have failed and are replaced at the next reset",
                     "a program that uses them ends with an uncorrectable ECC error", reset);
    if (gpu.lost_bits.value_or(0) > 0)
        return warning(
            check,
            fmt::format("{}, {} uncorrected memory errors since the driver was loaded", seen, *gpu.lost_bits),
            "each has ended a program; memory that fails once fails again", reset);
    return ok(check, seen);
}

Finding check_gpu(const Gpu& gpu) {
    const std::string check = fmt::format("GPU {}", gpu.number);
    if (!gpu.problem.empty())
        return fault(
            check, gpu.problem,
            "the GPU does not answer: it has fallen off the bus, or the driver has given it up",
            "dmesg | grep -i xid; a reboot; if it happens again, reseat it and check its power cables");
    std::string seen = gpu.name;
    if (gpu.temperature) seen += fmt::format(", {} °C", *gpu.temperature);
    if (gpu.pcie_width) seen += fmt::format(", PCIe x{}", *gpu.pcie_width);
    if (gpu.links_up > 0) seen += fmt::format(", {} NVLinks", gpu.links_up);
    if (gpu.is_mig) seen += ", MIG";
    if (const Finding memory = check_memory_of(gpu, check, seen); memory.level != Level::ok) return memory;
    if (gpu.compute_mode == kProhibited)
        return fault(check, seen + ", compute mode PROHIBITED", "no program may use it",
                     fmt::format("nvidia-smi -i {} -c DEFAULT", gpu.number));
    if (gpu.is_fabric_down)
        return fault(check, seen + ", NVSwitch's fabric has not been set up",
                     "CUDA fails with \"system not yet initialized\" (802)",
                     "systemctl enable --now nvidia-fabricmanager, of the same version as the driver");
    if (gpu.slowed_by & (kTooHot | kTooHotForSoftware))
        return warning(check, seen + ", slowed down because it is too hot",
                       "one slow GPU makes every rank wait for it",
                       "the node's fans, filters and air; nvidia-smi -q -d TEMPERATURE,PERFORMANCE");
    if ((gpu.slowed_by & kSlowedByHardware) && !(gpu.slowed_by & kPowerBrake))
        return warning(
            check, seen + ", slowed down by its hardware", "one slow GPU makes every rank wait for it",
            "nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE says whether heat or power is the reason");
    if (gpu.slowed_by & kPowerBrake)
        return warning(check, seen + ", slowed down by the node's power supply",
                       "one slow GPU makes every rank wait for it",
                       "the node's power supplies and their cables; nvidia-smi -q -d PERFORMANCE");
    if (gpu.pcie_width && gpu.pcie_most && *gpu.pcie_width < *gpu.pcie_most)
        return warning(check, fmt::format("{} of x{}", seen, *gpu.pcie_most),
                       "data reach it at a fraction of the speed of its neighbours",
                       "reseat it, or replace the riser; lspci -vv");
    if (gpu.links_up > 0 && gpu.links_down > 0)
        return warning(check, fmt::format("{}, {} more are down", seen, gpu.links_down),
                       "all-reduce within the node is as slow as its slowest link",
                       fmt::format("nvidia-smi nvlink -s -i {}; a reset; its bridge", gpu.number));
    if (gpu.compute_mode == kOneProcess)
        return warning(check, seen + ", compute mode EXCLUSIVE_PROCESS",
                       "a second rank on it fails unless MPS runs",
                       fmt::format("nvidia-smi -i {} -c DEFAULT, if ranks share GPUs here", gpu.number));
    return ok(check, seen);
}

Finding check_xids(const std::optional<std::vector<XidEvent>>& events) {
    if (!events) return ok("XID events", "the kernel's log is readable by root alone");
    if (events->empty()) return ok("XID events", "none since the boot, as far as the kernel's log goes back");
    const auto hardware = std::ranges::find_if(*events, is_of_hardware);
    const bool is_hardware = hardware != events->end();
    const std::string seen = fmt::format("{}, {}: {}", plural(events->size(), "event"),
                                         is_hardware ? "one of hardware" : "the last",
                                         printable(is_hardware ? hardware->line : events->back().line, 120));
    if (!is_hardware) return ok("XID events", seen + " (a program's own mistake, as a rule)");
    return warning("XID events", seen, "the GPU, its memory or its links have failed before",
                   "NVIDIA's \"XID Errors\" says what the number means; dcgmi diag -r 2");
}

Finding check_persistence(const std::vector<Gpu>& gpus) {
    std::vector<std::string> without;
    for (const Gpu& gpu : gpus)
        if (gpu.is_persistent == false) without.push_back(std::to_string(gpu.number));
    if (without.empty()) return ok("persistence", "on");
    return warning(
        "persistence", "off for GPU " + join(without, ","),
        "the driver sets the GPU up anew whenever no program uses it: each start takes seconds longer",
        "systemctl enable --now nvidia-persistenced");
}

}  // namespace

std::string cuda_version(int number) {
    return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

GpuFacts read_gpus(const std::string& root, const std::string& name) {
    GpuFacts facts;
    facts.has_device = has_nvidia_device(root);
    // First apart: a driver that is stuck takes whoever asks it with it.
    const auto tried = apart([&] { return ask_library(facts, name), std::string("done"); }, kDriverPatience);
    if (!tried || *tried != "done")
        facts.problem = name + ": " + (tried ? "whoever asks it crashes" : tried.error().message);
    else
        ask_library(facts, name);
    if (const auto log = kernel_log(root)) facts.xids = xid_events(*log);
    return facts;
}

Findings check_gpus(const GpuFacts& facts) {
    if (!facts.has_device) return {ok("GPUs", "no NVIDIA GPU")};
    if (!facts.problem.empty())
        return {
            fault("GPU driver", facts.problem, "an NVIDIA GPU is here, and no program can use it",
                  "nvidia-smi; modprobe nvidia; the driver's packages, built for this kernel (dkms status)")};
    Findings found{ok("GPU driver", fmt::format("{}, runs programs of CUDA {} and older", facts.driver,
                                                cuda_version(facts.cuda)))};
    for (const Gpu& gpu : facts.gpus) found.push_back(check_gpu(gpu));
    if (!facts.without_peer_access.empty())
        found.push_back(ok("peer access", "none between " + join(facts.without_peer_access) +
                                              ": NCCL copies through the CPU's memory there"));
    else if (facts.gpus.size() > 1)
        found.push_back(ok("peer access", "between all GPUs"));
    found.push_back(check_xids(facts.xids));
    found.push_back(check_persistence(facts.gpus));
    return found;
}

}  // namespace dp::doctor
