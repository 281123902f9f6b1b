// SPDX-License-Identifier: Apache-2.0
//
// How busy the NVIDIA GPUs of this node are, by tile: what `dpctl gpu-use` tells the node's daemon
// (loop/gpu_probe.hpp), which does not load their library itself.
#pragma once

#include <string>

#include "base/result.hpp"
#include "dp.pb.h"
#include "tiles/inventory.hpp"

namespace dp {

struct GpuUseOptions {
    std::string node;  // this one's name in tiles.conf
    std::string conf = kTilesConf;
};

// Of the tiles whose devices this process may use; a GPU that is several tiles is told for each. Nothing but
// `gpus` is set, and nothing where the node has no NVIDIA GPU or no libnvidia-ml. `root`: as of
// read_inventory.
Try<wire::NodeUsage> use_of_gpus(const GpuUseOptions& options, const std::string& root = "",
                                 const std::string& library = "libnvidia-ml.so.1");

// Writes that to stdout. -> exit code
int print_gpu_use(const GpuUseOptions& options);

}  // namespace dp
