// SPDX-License-Identifier: Apache-2.0
#include "nvml/devices.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"
#include "nvml/library.hpp"
#include "nvml/xid_events.hpp"
#include "tiles/conf.hpp"
#include "tiles/vendor.hpp"
#include "tiles/vendors/nvidia.hpp"

namespace dp {
namespace {

using namespace nvml;

constexpr size_t kUuidSize = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

struct Utilization {
    unsigned gpu = 0;
    unsigned memory = 0;
};

struct Memory {
    unsigned long long total = 0;
    unsigned long long free = 0;
    unsigned long long used = 0;
};

constexpr int kProcessors = 1;            // nvmlClockType_t: NVML_CLOCK_SM
constexpr int kOfTheChip = 0;             // nvmlTemperatureSensors_t: NVML_TEMPERATURE_GPU
constexpr unsigned kMostProcesses = 128;  // of a GPU

struct PciInfo {  // nvmlPciInfo_t
    char old_address[16]{};
    unsigned domain = 0, bus = 0, device = 0, kind = 0, board = 0;
    char address[32]{};
};

struct Process {  // nvmlProcessInfo_t
    unsigned pid = 0;
    unsigned long long memory = 0;
    unsigned gpu_instance = 0, compute_instance = 0;
};

// Of a whole GPU; an instance says nothing of this.
void note_state(const Library& nvml, Handle gpu, NvmlUse& use) {
    // Drivers before 510 do not say. Clients of a multi-process server are in the second one.
    for (const char* const function :
         {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"}) {
        std::array<Process, kMostProcesses> processes;
        unsigned count = kMostProcesses;
        if (nvml.call(function, gpu, &count, processes.data()) != kSuccess) continue;
        for (unsigned i = 0; i < std::min(count, kMostProcesses); ++i)
            use.processes.push_back(static_cast<pid_t>(processes[i].pid));
    }
    unsigned now = 0, most = 0, milliwatts = 0, degrees = 0;
    unsigned long long reasons = 0, errors = 0;
    if (nvml.call(kSlowedBy, gpu, &reasons) == kSuccess) use.clock_reasons = static_cast<uint32_t>(reasons);
    if (nvml.call("nvmlDeviceGetClockInfo", gpu, kProcessors, &now) == kSuccess) use.sm_mhz = now;
    if (use.sm_mhz && nvml.call("nvmlDeviceGetMaxClockInfo", gpu, kProcessors, &most) == kSuccess)
        use.clock_lost = clock_lost(use.busy_percent.value_or(0), reasons, now, most);
    if (nvml.call("nvmlDeviceGetPowerUsage", gpu, &milliwatts) == kSuccess)
        use.watts = (milliwatts + 500) / 1000;
    if (nvml.call("nvmlDeviceGetTemperature", gpu, kOfTheChip, &degrees) == kSuccess) use.celsius = degrees;
    if (nvml.call("nvmlDeviceGetTotalEccErrors", gpu, kUncorrected, kSinceLoaded, &errors) == kSuccess)
        use.lost_bits = errors;
    PciInfo where;
    if (nvml.call("nvmlDeviceGetPciInfo_v3", gpu, &where) == kSuccess)
        use.bus = fmt::format("{:04x}:{:02x}:{:02x}", where.domain, where.bus, where.device);
}

std::optional<NvmlUse> use_of(const Library& nvml, Handle device) {
    Utilization busy;
    Memory memory;
    const int rates = nvml.call("nvmlDeviceGetUtilizationRates", device, &busy);
    if ((rates != kSuccess && rates != kNotSupported) ||
        nvml.call("nvmlDeviceGetMemoryInfo", device, &memory) != kSuccess)
        return std::nullopt;
    NvmlUse use;
    use.memory_used = memory.used;
    use.memory_total = memory.total;
    if (rates != kSuccess) return use;
    use.busy_percent = busy.gpu;
    note_state(nvml, device, use);
    return use;
}

Try<NvmlDevice> describe(const Library& nvml, Handle device, std::string file) {
    std::array<char, kUuidSize> uuid{};
    DP_TRY(nvml.require("nvmlDeviceGetUUID", device, uuid.data(), static_cast<unsigned>(uuid.size() - 1)));
    return NvmlDevice{std::move(file), printable(uuid.data(), uuid.size()), use_of(nvml, device)};
}

Try<std::vector<NvmlDevice>> instances_of(const Library& nvml, Handle gpu, unsigned minor,
                                          const std::string& root) {
    std::vector<NvmlDevice> found;
    unsigned most = 0;
    int result = nvml.call("nvmlDeviceGetMaxMigDeviceCount", gpu, &most);
    if (result == kNotSupported) return found;
    if (result != kSuccess) return nvml.failed("nvmlDeviceGetMaxMigDeviceCount", result);
    for (unsigned i = 0; i < most; ++i) {
        Handle instance = nullptr;
        result = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, i, &instance);
        if (result == kNotSupported || result == kNotFound || result == kNoPermission) continue;
        if (result != kSuccess) return nvml.failed("nvmlDeviceGetMigDeviceHandleByIndex", result);
        MigInstance where{minor, 0, 0};
        DP_TRY(nvml.require("nvmlDeviceGetGpuInstanceId", instance, &where.gi));
        DP_TRY(nvml.require("nvmlDeviceGetComputeInstanceId", instance, &where.ci));
        auto file = DP_TRY(mig_file(root, where));
        found.emplace_back() = DP_TRY(describe(nvml, instance, std::move(file)));
    }
    return found;
}

// A GPU, or its instances; none if it may not be used.
Try<std::vector<NvmlDevice>> devices_at(const Library& nvml, unsigned index, const std::string& root) {
    Handle gpu = nullptr;
    unsigned minor = 0;
    const int result = nvml.call("nvmlDeviceGetHandleByIndex_v2", index, &gpu);
    if (result == kNoPermission) return std::vector<NvmlDevice>();
    if (result != kSuccess) return nvml.failed("nvmlDeviceGetHandleByIndex_v2", result);
    DP_TRY(nvml.require("nvmlDeviceGetMinorNumber", gpu, &minor));
    auto found = DP_TRY(instances_of(nvml, gpu, minor, root));
    if (found.empty())
        found.emplace_back() = DP_TRY(describe(nvml, gpu, "/dev/nvidia" + std::to_string(minor)));
    return found;
}

// One that has fallen off its bus does not hide the others: `skipped` gets a line for each that does not answer.
Try<std::vector<NvmlDevice>> devices_of(const Library& nvml, const std::string& root,
                                        const std::function<void(const std::string&)>& skipped) {
    std::vector<NvmlDevice> all;
    unsigned count = 0;
    DP_TRY(nvml.require("nvmlDeviceGetCount_v2", &count));
    for (unsigned i = 0; i < count; ++i) {
        const auto found = devices_at(nvml, i, root);
        if (found)
            all.insert(all.end(), found->begin(), found->end());
        else
            skipped("GPU " + std::to_string(i) + ": " + found.error().message);
    }
    return all;
}

void note_xids(const std::vector<XidEvent>& events, const std::string& bus, wire::NodeUsage::Gpu& gpu) {
    gpu.set_xid_line(0);
    for (const XidEvent& event : events) {
        if (event.bus != bus || !is_of_hardware(event)) continue;
        gpu.set_xid_line(event.at);
        gpu.set_last_xid(event.number);
    }
}

}  // namespace

std::optional<double> clock_lost(uint32_t busy_percent, uint64_t reasons, unsigned now, unsigned most) {
    constexpr uint32_t kBusy = 50;  // one that is less busy may well take its clock back
    if (busy_percent < kBusy || (reasons & kIdle) != 0 || most == 0) return std::nullopt;
    return 1 - std::min(1.0, static_cast<double>(now) / most);
}

Try<std::vector<NvmlDevice>> nvml_devices(const std::string& root, const std::string& library,
                                          const std::function<void(const std::string&)>& skipped) {
    const Library nvml(library);
    if (!nvml.is_there()) return std::vector<NvmlDevice>();
    DP_TRY(nvml.require("nvmlInit_v2"));
    return devices_of(nvml, root, skipped);
}

GpuUse::GpuUse(std::string root) : root_(std::move(root)) {}
GpuUse::GpuUse(GpuUse&&) noexcept = default;
GpuUse::~GpuUse() = default;

Try<GpuUse> GpuUse::open(const GpuUseOptions& options, const std::string& root, const std::string& library) {
    GpuUse use(root);
    use.reads_log_ = options.every.count() == 0;
    const auto inventory = DP_TRY(read_inventory(options.conf, options.node, root));
    if (!inventory || inventory->vendor != &kNvidia) return use;
    use.inventory_ = *inventory;
    auto nvml = std::make_unique<Library>(library);
    if (!nvml->is_there()) return use;
    DP_TRY(nvml->require("nvmlInit_v2"));
    use.nvml_ = std::move(nvml);
    return use;
}

Try<wire::NodeUsage> GpuUse::look() const {
    wire::NodeUsage usage;
    if (!is_there()) return usage;
    const auto known = DP_TRY(devices_of(*nvml_, root_, [&](const std::string& why) {
        if (usage.problem().empty()) usage.set_problem(why);
    }));
    const auto log = reads_log_ ? kernel_log(root_) : std::nullopt;
    const std::vector<XidEvent> events = log ? xid_events(*log) : std::vector<XidEvent>();
    const uint32_t each = inventory_.layout.tiles_per_device;
    for (uint32_t tile = 0; tile < inventory_.layout.tiles; ++tile)
        for (const NvmlDevice& device : known) {
            if (device.file != inventory_.devices[tile / each].file || !device.use) continue;
            const NvmlUse& use = *device.use;
            auto& gpu = *usage.add_gpus();
            gpu.set_tile(tile);
            gpu.set_device(tile / each);
            if (use.busy_percent) gpu.set_busy_percent(*use.busy_percent);
            gpu.set_memory_used(use.memory_used);
            gpu.set_memory_total(use.memory_total);
            for (const pid_t pid : use.processes) gpu.add_pids(pid);
            if (use.clock_lost) gpu.set_clock_lost(*use.clock_lost);
            if (use.clock_reasons) {
                gpu.set_is_slowed((*use.clock_reasons & kSlowed) != 0);
                gpu.set_clock_reasons(*use.clock_reasons);
            }
            if (use.lost_bits) gpu.set_lost_bits(*use.lost_bits);
            if (log && !use.bus.empty()) note_xids(events, use.bus, gpu);
            if (use.watts) gpu.set_watts(*use.watts);
            if (use.celsius) gpu.set_celsius(*use.celsius);
            if (use.sm_mhz) gpu.set_sm_mhz(*use.sm_mhz);
        }
    return usage;
}

}  // namespace dp
