// SPDX-License-Identifier: Apache-2.0
//
// How busy this node's NVIDIA GPUs are, by tile: `dpctl gpu-use` reports it to the node's daemon
// (loop/gpu_probe.hpp), which does not load their library itself.
#pragma once

#include <string>

#include "base/failure.hpp"
#include "dp.pb.h"
#include "tiles/inventory.hpp"

namespace dp {

struct GpuUseOptions {
    std::string node;  // this one's name in tiles.conf
    std::string conf = kTilesConf;
};

// Use of the tiles whose devices this process may open; a GPU that is several tiles is reported for
// each. Sets only `gpus`, which stays empty if the node has no NVIDIA GPU or no libnvidia-ml.
// `root`: see read_inventory.
Try<wire::NodeUsage> use_of_gpus(const GpuUseOptions& options, const std::string& root = "",
                                 const std::string& library = "libnvidia-ml.so.1");

// Writes that to standard output. Returns the exit code.
int print_gpu_use(const GpuUseOptions& options);

}  // namespace dp
