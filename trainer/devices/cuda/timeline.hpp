// SPDX-License-Identifier: Apache-2.0
//
// What a GPU did in each operation, for `trainer --profile`: by the activity records of CUPTI, CUDA's profiling library, which
// is opened when it is asked for. CUPTI's manual, "Activity API", has what is relied upon here.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "trainer/devices/device_timeline.hpp"

namespace dp::trainer {

// Waits for `stream`, which it must not outlive, before it tells its works. One of a process at a time.
Result<std::shared_ptr<DeviceTimeline>> open_timeline(cudaStream_t stream);

// Names each operation as a range of NVTX, which NVIDIA's tools show (`nsys profile`), and notes nothing.
std::shared_ptr<DeviceTimeline> name_ranges();

// Whether one of those tools has started this process.
bool has_nvtx_tool();

}  // namespace dp::trainer
