// SPDX-License-Identifier: Apache-2.0
//
// AMD's GPUs and their partitions (each XCD is a device in CPX mode). ROCR_VISIBLE_DEVICES is what the
// runtime shows at all; HIP_VISIBLE_DEVICES counts among those: "GPU isolation techniques" of ROCm's
// documentation.
#include "tiles/vendor.hpp"

namespace dp {
namespace {

VendorVariables variables(const TileView& view) {
    std::vector<std::string> names;
    std::vector<std::string> among;
    VendorVariables out = visible_units(view, names);
    for (size_t i = 0; i < names.size(); ++i) among.push_back(std::to_string(i));
    // HIP reads CUDA_VISIBLE_DEVICES, too, where its own is missing, and Slurm may have set that one.
    out.variables = {{"ROCR_VISIBLE_DEVICES", join(names), TaskVariable::Whose::slurm},
                     {"HIP_VISIBLE_DEVICES", join(among)}};
    return out;
}

}  // namespace

const Vendor kAmd = {"amd", "gpu", variables, nullptr, "ROCR_VISIBLE_DEVICES"};

}  // namespace dp
