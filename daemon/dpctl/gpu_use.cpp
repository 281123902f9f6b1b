// SPDX-License-Identifier: Apache-2.0
#include "dpctl/gpu_use.hpp"

#include <unistd.h>

#include "dpctl/nvml.hpp"
#include "dpctl/query.hpp"
#include "tiles/discover.hpp"
#include "tiles/vendor.hpp"

namespace dp {

Try<wire::NodeUsage> use_of_gpus(const GpuUseOptions& options, const std::string& root,
                                 const std::string& library) {
    wire::NodeUsage usage;
    const auto inventory = DP_TRY(read_inventory(options.conf, options.node, root));
    if (!inventory || inventory->vendor != &kNvidia) return usage;
    const auto nvml = DP_TRY(Nvml::open(library));
    if (!nvml) return usage;
    const auto known = DP_TRY(nvml->devices(root));
    const uint32_t each = inventory->layout.tiles_per_device;
    for (uint32_t tile = 0; tile < inventory->layout.tiles; ++tile)
        for (const NvmlDevice& device : known) {
            if (device.file != inventory->devices[tile / each].file) continue;
            const auto use = nvml->use_of(device);
            if (!use) continue;
            auto& gpu = *usage.add_gpus();
            gpu.set_tile(tile);
            if (use->busy_percent) gpu.set_busy_percent(*use->busy_percent);
            gpu.set_memory_used(use->memory_used);
            gpu.set_memory_total(use->memory_total);
        }
    return usage;
}

int print_gpu_use(const GpuUseOptions& options) {
    const auto usage = use_of_gpus(options);
    if (!usage) return complain(usage.error().message);
    const std::string bytes = usage->SerializeAsString();
    const bool written =
        write(STDOUT_FILENO, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    return written ? 0 : complain("cannot write what the GPUs do");
}

}  // namespace dp
