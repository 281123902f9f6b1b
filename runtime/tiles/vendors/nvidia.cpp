// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's GPUs and their MIG instances. CUDA_VISIBLE_DEVICES lists devices, or UUIDs of instances, of which
// a process can use only one: CUDA C++ Programming Guide, "CUDA Environment Variables"; MIG User Guide,
// "CUDA Visible Devices".
//
// Detected in /proc, without NVIDIA's library. The order is that of the device files, as in Slurm's
// AutoDetect=nvidia and File=/dev/nvidia[0-7] in gres.conf. AutoDetect=nvml counts whole GPUs by their PCI
// addresses instead (_sort_gpu_by_links_order of Slurm's src/plugins/gres/gpu/gres_gpu.c); if that is another
// order, the site writes files= into tiles.conf.
#include "tiles/vendors/nvidia.hpp"

#include <algorithm>
#include <cctype>

#include "base/text.hpp"
#include "tiles/sysfs.hpp"
#include "tiles/vendor.hpp"

namespace dp {
namespace {

constexpr const char* kWriteIt = "; write the node's devices into tiles.conf";

VendorVariables variables(const TileView& view) {
    std::vector<std::string> names;
    VendorVariables out = visible_devices(view, names);
    if (!names.empty() && names[out.device].starts_with("MIG-")) {
        names = {names[out.device]};
        out.device = 0;
    }
    out.variables = {{"CUDA_VISIBLE_DEVICES", join(names), TaskVariable::Whose::slurm},
                     // Slurm counts by the device files; CUDA would put the fastest first.
                     {"CUDA_DEVICE_ORDER", "PCI_BUS_ID", TaskVariable::Whose::job}};
    return out;
}

struct Gpu {
    uint32_t minor = 0;
    TileDevice device;
};

// nullopt for a GPU that the driver does not use. Source: nv_procfs_read_gpu_info of NVIDIA's
// open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c.
Try<std::optional<Gpu>> read_gpu(const std::string& root, const std::string& folder) {
    const std::string path = root + "/proc/driver/nvidia/gpus/" + folder + "/information";
    const auto text = DP_TRY(read_text(path));
    const std::string information = text.value_or("");
    if (value_behind(information, "GPU Excluded:") == "Yes") return std::nullopt;
    const auto minor = parse_number<uint32_t>(value_behind(information, "Device Minor:").value_or(""));
    if (!minor) return fail(path + " does not say which /dev/nvidia* is this GPU's" + kWriteIt);
    std::string address(value_behind(information, "Bus Location:").value_or(folder));
    for (char& c : address) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    auto device = DP_TRY(device_at(root, address));
    device.name = printable(value_behind(information, "Model:").value_or(""), 80);
    device.file = "/dev/nvidia" + std::to_string(*minor);
    return Gpu{*minor, std::move(device)};
}

// The usable part of MIG is the compute instances; the folders are those of the existing instances. Source:
// MIG User Guide, "Device Nodes and Capabilities".
Try<std::vector<TileDevice>> read_instances(const std::string& root, const Gpu& gpu) {
    std::vector<TileDevice> found;
    const std::string folder =
        root + "/proc/driver/nvidia/capabilities/gpu" + std::to_string(gpu.minor) + "/mig";
    const auto instances = DP_TRY(list_numbered(folder, "gi"));
    for (uint32_t gi : instances) {
        const auto computing = DP_TRY(list_numbered(folder + "/gi" + std::to_string(gi), "ci"));
        for (uint32_t ci : computing) {
            TileDevice& instance = found.emplace_back(gpu.device);
            instance.name += " MIG gi" + std::to_string(gi) + "/ci" + std::to_string(ci);
            instance.file = DP_TRY(mig_file(root, {gpu.minor, gi, ci}));
        }
    }
    return found;
}

// Slurm hands out MIG instances instead of their GPU, as units of gres gpu; a GPU in MIG mode without
// instances stays a unit (_get_system_gpu_list_nvml of Slurm's src/plugins/gpu/nvml/gpu_nvml.c). Instances
// come after all whole GPUs, because they have no links, in the order of their files, whose numbers rise with
// gi and ci: /dev/nvidia-caps/nvidia-cap12, ... (_merge_system_gres_conf of gres_gpu.c).
Try<std::optional<TileInventory>> detect(const std::string& root) {
    const auto folders = DP_TRY(list_folder(root + "/proc/driver/nvidia/gpus"));
    std::vector<Gpu> gpus;
    for (const std::string& folder : folders) {
        auto gpu = DP_TRY(read_gpu(root, folder));
        if (gpu) gpus.push_back(std::move(*gpu));
    }
    std::sort(gpus.begin(), gpus.end(), [](const Gpu& a, const Gpu& b) { return a.minor < b.minor; });
    std::vector<TileDevice> devices;
    std::vector<TileDevice> instances;
    for (const Gpu& gpu : gpus) {
        const auto parts = DP_TRY(read_instances(root, gpu));
        instances.insert(instances.end(), parts.begin(), parts.end());
        if (parts.empty()) devices.push_back(gpu.device);
    }
    devices.insert(devices.end(), instances.begin(), instances.end());
    return inventory_of_gpus(std::move(devices));
}

}  // namespace

Try<std::string> mig_file(const std::string& root, const MigInstance& instance) {
    const std::string path = root + "/proc/driver/nvidia/capabilities/gpu" + std::to_string(instance.gpu) +
                             "/mig/gi" + std::to_string(instance.gi) + "/ci" + std::to_string(instance.ci) +
                             "/access";
    const auto text = DP_TRY(read_text(path));
    const auto minor =
        parse_number<uint32_t>(value_behind(text.value_or(""), "DeviceFileMinor:").value_or(""));
    if (!minor) return fail(path + " does not say which of /dev/nvidia-caps is this instance's" + kWriteIt);
    return "/dev/nvidia-caps/nvidia-cap" + std::to_string(*minor);
}

const Vendor kNvidia = {"nvidia", "gpu", variables, detect, "CUDA_VISIBLE_DEVICES"};

}  // namespace dp
