// SPDX-License-Identifier: Apache-2.0
//
// Intel's GPUs and their stacks. What ZE_AFFINITY_MASK counts depends on ZE_FLAT_DEVICE_HIERARCHY: stacks
// under FLAT (the default) and COMBINED ("0,1"), devices and their stacks under COMPOSITE ("0.0,0.1"): Level
// Zero's specification, "Environment Variables". So the two are always set together.
//
// Detected in /sys, in the order of their PCI addresses, as Slurm's AutoDetect=oneapi counts them:
// src/plugins/gpu/oneapi/gpu_oneapi.c asks for COMPOSITE and ZE_ENABLE_PCI_ID_DEVICE_ORDER.
#include <algorithm>

#include "base/text.hpp"
#include "tiles/sysfs.hpp"
#include "tiles/vendor.hpp"

namespace dp {
namespace {

VendorVariables variables(const TileView& view) {
    const std::string asked = view.get("ZE_FLAT_DEVICE_HIERARCHY").value_or("");
    const bool composite = asked == "COMPOSITE";
    const uint32_t per_device = view.inventory.layout.tiles_per_device;
    // Level Zero lists devices in its own order (here PCI's), whatever the mask's.
    std::vector<uint32_t> numbers;
    // So it shows one tile of each other rank: number LOCAL_RANK is then one of this rank's own, as long as
    // the shares are in the order of the ranks.
    for (uint32_t tile : view.firsts) numbers.push_back(view.number_in_task(tile));
    for (uint32_t tile : view.own) numbers.push_back(view.number_in_task(tile));
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    VendorVariables out;
    std::vector<std::string> names;
    std::vector<uint32_t> devices;  // as the program counts them
    for (uint32_t number : numbers) {
        const uint32_t device = composite ? number / per_device : number;
        if (devices.empty() || devices.back() != device) devices.push_back(device);
        if (!view.own.empty() && number == view.number_in_task(view.own.front()))
            out.device = static_cast<uint32_t>(devices.size() - 1);
        names.push_back(composite ? std::to_string(device) + "." + std::to_string(number % per_device)
                                  : std::to_string(number));
    }
    out.variables = {{"ZE_AFFINITY_MASK", join(names), TaskVariable::Whose::slurm},
                     {"ZE_FLAT_DEVICE_HIERARCHY", "FLAT", TaskVariable::Whose::job},
                     {"ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1", TaskVariable::Whose::job}};
    return out;
}

struct Gpu {
    std::string address;
    uint32_t tiles = 1;
    TileDevice device;
};

// A compute GPU appears as a display or 3D controller without a screen (classes 0380 and 0302 of pci.ids).
// One that is part of a processor is 0300, or 0380 if another card has the screen, and always at 00:02.0.
bool is_for_computing(std::string_view pci_class, std::string_view address) {
    return (pci_class.starts_with("0x0380") || pci_class.starts_with("0x0302")) && address != "0000:00:02.0";
}

// Counts stacks. The xe driver has a folder for each, which contains its GTs, of which one may be for media
// only: "device/ tile#/gt#", xe_gt_freq.c of Linux. i915 has a GT for each: "gt/gt0", intel_gt_sysfs.c. i915
// before 5.18 has no such folder and does not know a second stack.
Try<uint32_t> count_tiles(const std::string& card) {
    const auto tiles = DP_TRY(list_numbered(card + "/device", "tile"));
    if (!tiles.empty()) return static_cast<uint32_t>(tiles.size());
    const auto gts = DP_TRY(list_numbered(card + "/gt", "gt"));
    return static_cast<uint32_t>(std::max<size_t>(1, gts.size()));
}

// nullopt if it is another kind of card.
Try<std::optional<Gpu>> read_gpu(const std::string& root, const std::string& card) {
    const auto vendor = DP_TRY(read_word(card + "/device/vendor"));
    if (vendor != "0x8086") return std::nullopt;
    const auto pci_class = DP_TRY(read_word(card + "/device/class"));
    Gpu gpu;
    gpu.address = real_name(card + "/device");
    if (!is_for_computing(pci_class, gpu.address)) return std::nullopt;
    gpu.tiles = DP_TRY(count_tiles(card));
    const auto files = DP_TRY(list_numbered(card + "/device/drm", "renderD"));
    gpu.device = DP_TRY(device_at(root, gpu.address));
    if (!files.empty()) gpu.device.file = "/dev/dri/renderD" + std::to_string(files.front());
    return gpu;
}

Try<std::optional<TileInventory>> detect(const std::string& root) {
    const std::string folder = root + "/sys/class/drm";
    const auto cards = DP_TRY(list_numbered(folder, "card"));
    std::vector<Gpu> gpus;
    for (uint32_t card : cards) {
        auto gpu = DP_TRY(read_gpu(root, folder + "/card" + std::to_string(card)));
        if (gpu) gpus.push_back(std::move(*gpu));
    }
    if (gpus.empty()) return std::nullopt;
    // A domain beyond ffff has a fifth digit.
    std::sort(gpus.begin(), gpus.end(), [](const Gpu& a, const Gpu& b) {
        return std::pair(a.address.size(), a.address) < std::pair(b.address.size(), b.address);
    });
    std::vector<TileDevice> devices;
    for (Gpu& gpu : gpus) {
        if (gpu.tiles != gpus.front().tiles)
            return fail("Intel's GPU " + gpu.address + " has " + plural(gpu.tiles, "tile") + " and " +
                        gpus.front().address + " has " + std::to_string(gpus.front().tiles) +
                        "; write into tiles.conf what of this node is to be given to ranks");
        devices.push_back(std::move(gpu.device));
    }
    return inventory_of_gpus(std::move(devices), gpus.front().tiles);
}

}  // namespace

const Vendor kIntel = {"intel", "gpu", variables, detect, "ZE_AFFINITY_MASK"};

}  // namespace dp
