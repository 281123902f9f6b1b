// SPDX-License-Identifier: Apache-2.0
#include "dpctl/gpu_use.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "tiles/vendor.hpp"

namespace dp {

std::string this_node() {
    if (const char* name = std::getenv("SLURMD_NODENAME"); name && *name) return name;
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    const std::string whole = host.data();
    return whole.substr(0, whole.find('.'));
}

GpuUse::GpuUse(Nvml nvml, std::map<uint32_t, NvmlDevice> devices)
    : nvml_(std::move(nvml)), devices_(std::move(devices)) {}

Try<std::optional<GpuUse>> GpuUse::open(const std::string& tiles_conf, const std::string& root,
                                        const std::string& library) {
    const auto inventory = read_inventory(tiles_conf, this_node(), root);
    if (!inventory) return tl::make_unexpected(inventory.error());
    if (!*inventory || (*inventory)->vendor != &kNvidia) return std::nullopt;
    auto nvml = Nvml::open(library);
    if (!nvml) return tl::make_unexpected(nvml.error());
    if (!*nvml) return std::nullopt;
    const auto known = (*nvml)->devices(root);
    if (!known) return tl::make_unexpected(known.error());
    std::map<uint32_t, NvmlDevice> devices;
    const uint32_t each = (*inventory)->layout.tiles_per_device;
    for (uint32_t tile = 0; tile < (*inventory)->layout.tiles; ++tile)
        for (const NvmlDevice& device : *known)
            if (device.file == (*inventory)->devices[tile / each].file) devices.emplace(tile, device);
    return GpuUse(std::move(**nvml), std::move(devices));
}

std::map<uint32_t, NvmlUse> GpuUse::by_tile() const {
    std::map<uint32_t, NvmlUse> uses;
    for (const auto& [tile, device] : devices_)
        if (auto use = nvml_.use_of(device)) uses.emplace(tile, *use);
    return uses;
}

}  // namespace dp
