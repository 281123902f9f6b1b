// SPDX-License-Identifier: Apache-2.0
//
// AMD's GPUs and their partitions (each XCD is a device in CPX mode). ROCR_VISIBLE_DEVICES selects what the
// runtime shows, HIP_VISIBLE_DEVICES counts among those: ROCm's "GPU isolation techniques".
//
// Detected in the topology of the compute driver (KFD), which has a node per partition, in the order of their
// PCI addresses, as Slurm's AutoDetect=rsmi counts them (src/plugins/gpu/rsmi/gpu_rsmi.c).
#include <algorithm>
#include <cstdio>
#include <tuple>

#include "base/text.hpp"
#include "tiles/sysfs.hpp"
#include "tiles/vendor.hpp"

namespace dp {
namespace {

VendorVariables variables(const TileView& view) {
    std::vector<std::string> names;
    std::vector<std::string> among;
    VendorVariables out = visible_devices(view, names);
    for (size_t i = 0; i < names.size(); ++i) among.push_back(std::to_string(i));
    // HIP also reads CUDA_VISIBLE_DEVICES if its own variable is missing, and Slurm may have set it.
    out.variables = {{"ROCR_VISIBLE_DEVICES", join(names), TaskVariable::Whose::slurm},
                     {"HIP_VISIBLE_DEVICES", join(among)}};
    return out;
}

struct Gpu {
    uint32_t domain = 0;
    uint32_t location = 0;
    uint32_t node = 0;
    TileDevice device;
};

// `location` is bus<<8 | device<<3 | function. Linux puts a partition's number into the function
// (kfd_topology_add_device of drivers/gpu/drm/amd/amdkfd/kfd_topology.c), although the bus only knows 0.
std::string pci_address(uint32_t domain, uint32_t location, uint32_t function) {
    char text[32];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", domain, location >> 8 & 0xff, location >> 3 & 0x1f,
                  function);
    return text;
}

Try<TileDevice> device_of(const std::string& root, const Gpu& gpu) {
    auto own = device_at(root, pci_address(gpu.domain, gpu.location, gpu.location & 7));
    if (!own || own->numa || !own->cpus.empty()) return own;
    return device_at(root, pci_address(gpu.domain, gpu.location, 0));
}

// nullopt if the node is a processor. `node` is its folder.
Try<std::optional<Gpu>> read_gpu(const std::string& root, const std::string& folder, uint32_t node) {
    const auto text = read_text(folder + "/properties");
    // If a device cgroup hides the GPU, the process cannot read where it is (node_show, kfd_topology.c).
    if (!text)
        return fail(text.error().message +
                    "; where a device cgroup hides some of the GPUs, they cannot be counted: ask outside of "
                    "the job, or write the node's devices into tiles.conf");
    const std::string properties = text->value_or("");
    const auto number = [&properties](std::string_view key) {
        return parse_number<uint32_t>(value_behind(properties, key).value_or("")).value_or(0);
    };
    if (number("simd_count ") == 0) return std::nullopt;
    Gpu gpu{number("domain "), number("location_id "), node, {}};
    gpu.device = DP_TRY(device_of(root, gpu));
    const auto name = DP_TRY(read_word(folder + "/name"));
    gpu.device.name = printable(name, 80);
    if (const uint32_t minor = number("drm_render_minor "); minor > 0)
        gpu.device.file = "/dev/dri/renderD" + std::to_string(minor);
    return gpu;
}

Try<std::optional<TileInventory>> detect(const std::string& root) {
    const std::string folder = root + "/sys/class/kfd/kfd/topology/nodes";
    const auto nodes = DP_TRY(list_numbered(folder, ""));
    std::vector<Gpu> gpus;
    for (uint32_t node : nodes) {
        auto gpu = DP_TRY(read_gpu(root, folder + "/" + std::to_string(node), node));
        if (gpu) gpus.push_back(std::move(*gpu));
    }
    std::sort(gpus.begin(), gpus.end(), [](const Gpu& a, const Gpu& b) {
        return std::tie(a.domain, a.location, a.node) < std::tie(b.domain, b.location, b.node);
    });
    std::vector<TileDevice> devices;
    devices.reserve(gpus.size());
    for (Gpu& gpu : gpus) devices.push_back(std::move(gpu.device));
    return inventory_of_gpus(std::move(devices));
}

}  // namespace

const Vendor kAmd = {"amd", "gpu", variables, detect, "ROCR_VISIBLE_DEVICES"};

}  // namespace dp
