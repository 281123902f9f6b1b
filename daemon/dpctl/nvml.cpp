// SPDX-License-Identifier: Apache-2.0
#include "dpctl/nvml.hpp"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "base/text.hpp"
#include "tiles/vendors/nvidia.hpp"

namespace dp {
namespace {

// Source: nvml.h of CUDA 12. Names and values are stable; the "_v2" forms exist since 2013.
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNoPermission = 4;
constexpr int kNotFound = 6;
constexpr size_t kUuidSize = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE
using Handle = void*;             // nvmlDevice_t

struct Utilization {
    unsigned gpu = 0;
    unsigned memory = 0;
};

struct Memory {
    unsigned long long total = 0;
    unsigned long long free = 0;
    unsigned long long used = 0;
};

}  // namespace

struct Nvml::Library {
    std::string name;
    void* object = nullptr;
    bool initialised = false;

    int (*init)() = nullptr;
    int (*shutdown)() = nullptr;
    const char* (*error_string)(int) = nullptr;
    int (*count)(unsigned*) = nullptr;
    int (*by_index)(unsigned, Handle*) = nullptr;
    int (*minor_number)(Handle, unsigned*) = nullptr;
    int (*uuid)(Handle, char*, unsigned) = nullptr;
    int (*max_instances)(Handle, unsigned*) = nullptr;
    int (*instance)(Handle, unsigned, Handle*) = nullptr;
    int (*gpu_instance_id)(Handle, unsigned*) = nullptr;
    int (*compute_instance_id)(Handle, unsigned*) = nullptr;
    int (*utilization)(Handle, Utilization*) = nullptr;
    int (*memory)(Handle, Memory*) = nullptr;

    Library() = default;
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    ~Library() {
        if (initialised) shutdown();
        if (object) dlclose(object);
    }

    tl::unexpected<Failure> failed(const char* call, int result) const {
        const char* words = error_string ? error_string(result) : nullptr;
        return fail(name + ": " + call + ": " + printable(words ? words : "", 100) + " (" +
                    std::to_string(result) + ")");
    }
    Try<void> look_up();
    Try<std::string> uuid_of(Handle device) const;
    Try<std::vector<NvmlDevice>> instances_of(Handle gpu, unsigned minor, const std::string& root) const;
};

Try<void> Nvml::Library::look_up() {
    const char* missing = nullptr;
    const auto take = [&](auto& function, const char* symbol) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(object, symbol));
        if (!function) missing = symbol;
    };
    take(init, "nvmlInit_v2");
    take(shutdown, "nvmlShutdown");
    take(error_string, "nvmlErrorString");
    take(count, "nvmlDeviceGetCount_v2");
    take(by_index, "nvmlDeviceGetHandleByIndex_v2");
    take(minor_number, "nvmlDeviceGetMinorNumber");
    take(uuid, "nvmlDeviceGetUUID");
    take(max_instances, "nvmlDeviceGetMaxMigDeviceCount");
    take(instance, "nvmlDeviceGetMigDeviceHandleByIndex");
    take(gpu_instance_id, "nvmlDeviceGetGpuInstanceId");
    take(compute_instance_id, "nvmlDeviceGetComputeInstanceId");
    take(utilization, "nvmlDeviceGetUtilizationRates");
    take(memory, "nvmlDeviceGetMemoryInfo");
    if (missing)
        return fail(name + " has no " + missing + "; it belongs to a driver of before 450, update that");
    return {};
}

Try<std::string> Nvml::Library::uuid_of(Handle device) const {
    std::array<char, kUuidSize> text{};
    if (const int result = uuid(device, text.data(), static_cast<unsigned>(text.size() - 1));
        result != kSuccess)
        return failed("nvmlDeviceGetUUID", result);
    return printable(text.data(), text.size());
}

Try<std::vector<NvmlDevice>> Nvml::Library::instances_of(Handle gpu, unsigned minor,
                                                         const std::string& root) const {
    std::vector<NvmlDevice> found;
    unsigned most = 0;
    int result = max_instances(gpu, &most);
    if (result == kNotSupported) return found;
    if (result != kSuccess) return failed("nvmlDeviceGetMaxMigDeviceCount", result);
    for (unsigned i = 0; i < most; ++i) {
        Handle handle = nullptr;
        result = instance(gpu, i, &handle);
        if (result == kNotSupported || result == kNotFound || result == kNoPermission) continue;
        if (result != kSuccess) return failed("nvmlDeviceGetMigDeviceHandleByIndex", result);
        MigInstance where{minor, 0, 0};
        result = gpu_instance_id(handle, &where.gi);
        if (result != kSuccess) return failed("nvmlDeviceGetGpuInstanceId", result);
        result = compute_instance_id(handle, &where.ci);
        if (result != kSuccess) return failed("nvmlDeviceGetComputeInstanceId", result);
        auto file = DP_TRY(mig_file(root, where));
        auto name_of = DP_TRY(uuid_of(handle));
        found.push_back({std::move(file), std::move(name_of), handle});
    }
    return found;
}

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::Nvml(Nvml&& other) noexcept = default;
Nvml& Nvml::operator=(Nvml&& other) noexcept = default;
Nvml::~Nvml() = default;

Try<std::optional<Nvml>> Nvml::open(const std::string& library) {
    auto opened = std::make_unique<Library>();
    opened->name = library;
    opened->object = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened->object) return std::nullopt;
    DP_TRY(opened->look_up());
    if (const int result = opened->init(); result != kSuccess) return opened->failed("nvmlInit_v2", result);
    opened->initialised = true;
    return Nvml(std::move(opened));
}

Try<std::vector<NvmlDevice>> Nvml::devices(const std::string& root) const {
    unsigned count = 0;
    int result = library_->count(&count);
    if (result != kSuccess) return library_->failed("nvmlDeviceGetCount_v2", result);
    std::vector<NvmlDevice> found;
    for (unsigned i = 0; i < count; ++i) {
        Handle gpu = nullptr;
        result = library_->by_index(i, &gpu);
        if (result == kNoPermission) continue;
        if (result != kSuccess) return library_->failed("nvmlDeviceGetHandleByIndex_v2", result);
        unsigned minor = 0;
        result = library_->minor_number(gpu, &minor);
        if (result != kSuccess) return library_->failed("nvmlDeviceGetMinorNumber", result);
        auto instances = library_->instances_of(gpu, minor, root);
        if (!instances) return instances;
        if (!instances->empty()) {
            found.insert(found.end(), instances->begin(), instances->end());
            continue;
        }
        auto uuid = DP_TRY(library_->uuid_of(gpu));
        found.push_back({"/dev/nvidia" + std::to_string(minor), std::move(uuid), gpu});
    }
    return found;
}

Try<NvmlUse> Nvml::use_of(const NvmlDevice& device) const {
    NvmlUse use;
    Utilization busy;
    int result = library_->utilization(device.handle, &busy);
    if (result == kSuccess) {
        use.busy_percent = busy.gpu;
        use.memory_busy_percent = busy.memory;
    } else if (result != kNotSupported) {
        return library_->failed("nvmlDeviceGetUtilizationRates", result);
    }
    Memory memory;
    result = library_->memory(device.handle, &memory);
    if (result != kSuccess) return library_->failed("nvmlDeviceGetMemoryInfo", result);
    use.memory_used = memory.used;
    use.memory_total = memory.total;
    return use;
}

}  // namespace dp
