// SPDX-License-Identifier: Apache-2.0
//
// Why a GPU's clock is not higher, by the bits of nvmlClocksEventReasons.
#pragma once

#include <cstdint>

namespace dp::nvml {

enum : uint64_t {
    kIdle = 0x1,
    kSlowedByHardware = 0x8,
    kTooHotForSoftware = 0x20,
    kTooHot = 0x40,
    kPowerBrake = 0x80,
    // It is slower than it should be: by heat, its power supply or its board.
    kSlowed = kSlowedByHardware | kTooHotForSoftware | kTooHot | kPowerBrake
};

}  // namespace dp::nvml
