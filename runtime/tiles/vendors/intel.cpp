// SPDX-License-Identifier: Apache-2.0
//
// Intel's GPUs and their stacks. What ZE_AFFINITY_MASK counts depends on ZE_FLAT_DEVICE_HIERARCHY: stacks
// under FLAT (the default) and COMBINED ("0,1"), devices and their stacks under COMPOSITE ("0.0,0.1"): Level
// Zero's specification, "Environment Variables". So the two are always set together.
#include <algorithm>

#include "tiles/vendor.hpp"

namespace dp {
namespace {

VendorVariables variables(const TileView& view) {
    const std::string asked = view.get("ZE_FLAT_DEVICE_HIERARCHY").value_or("");
    const bool composite = asked == "COMPOSITE";
    const uint32_t per_device = view.inventory.layout.tiles_per_device;
    // Level Zero lists devices in an order of its own (here that of PCI), whatever the mask's.
    std::vector<uint32_t> numbers;
    for (uint32_t tile : view.visible) numbers.push_back(view.number_in_task(tile));
    std::sort(numbers.begin(), numbers.end());
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

}  // namespace

const Vendor kIntel = {"intel", "gpu", variables, nullptr, "ZE_AFFINITY_MASK"};

}  // namespace dp
