// SPDX-License-Identifier: Apache-2.0
//
// How busy the NVIDIA GPUs of this node are, by tile, for `dpctl top`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "dpctl/nvml.hpp"
#include "tiles/inventory.hpp"

namespace dp {

// The node that this runs on, as Slurm calls it.
std::string this_node();

class GpuUse {
 public:
    // nullopt where this node has no NVIDIA GPU or no libnvidia-ml.
    static Try<std::optional<GpuUse>> open(const std::string& tiles_conf = kTilesConf,
                                           const std::string& root = "",
                                           const std::string& library = "libnvidia-ml.so.1");

    // Of the tiles whose devices this process may use; a GPU that is several tiles is told for each.
    std::map<uint32_t, NvmlUse> by_tile() const;

 private:
    GpuUse(Nvml nvml, std::map<uint32_t, NvmlDevice> devices);
    Nvml nvml_;
    std::map<uint32_t, NvmlDevice> devices_;  // by tile
};

}  // namespace dp
