// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's GPUs and their MIG instances. CUDA_VISIBLE_DEVICES lists devices, or UUIDs of instances, of which
// a process can use one alone: CUDA C++ Programming Guide, "CUDA Environment Variables"; MIG User Guide,
// "CUDA Visible Devices".
#include "tiles/vendor.hpp"

namespace dp {
namespace {

bool is_instance(const std::string& name) {
    return name.rfind("MIG-", 0) == 0;
}

VendorVariables variables(const TileView& view) {
    std::vector<std::string> names;
    VendorVariables out = visible_units(view, names);
    if (!names.empty() && is_instance(names[out.device])) {
        names = {names[out.device]};
        out.device = 0;
    }
    out.variables = {{"CUDA_VISIBLE_DEVICES", join(names), TaskVariable::Whose::slurm},
                     // Slurm counts by the device files; CUDA would put the fastest first.
                     {"CUDA_DEVICE_ORDER", "PCI_BUS_ID", TaskVariable::Whose::job}};
    return out;
}

}  // namespace

const Vendor kNvidia = {"nvidia", "gpu", variables, nullptr, "CUDA_VISIBLE_DEVICES"};

}  // namespace dp
