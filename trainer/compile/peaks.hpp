// SPDX-License-Identifier: Apache-2.0
//
// What a device reaches at most, measured: the two lines of a roofline (Williams, Waterman and Patterson 2009). `trainer compile`
// keeps it with a plan.
#pragma once

#include <optional>

#include "trainer/devices/device.hpp"

namespace dp::trainer {

struct Peaks {
    double flops = 0;  // a second, of products of large matrices
    double bytes = 0;  // a second, read and written, of tensors larger than caches

    bool operator==(const Peaks&) const = default;
};

// Takes about half a second on a CPU, and 256 MiB; nullopt where that is not there, or the device has failed. `type`: of activations.
// `ranks_of_host` measure at once.
std::optional<Peaks> measure_peaks(Device& device, Type type, std::int64_t ranks_of_host);

}  // namespace dp::trainer
