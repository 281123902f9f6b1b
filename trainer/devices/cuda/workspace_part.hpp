// SPDX-License-Identifier: Apache-2.0
//
// Where an operation's part lies in the device's workspace. The tests' emulated GPU replaces this file, so that it sees what is read
// or written around the part (tests/unit/trainer/cuda_emulator).
#pragma once

#include <cstdint>

namespace dp::trainer {

inline void* workspace_part(void* workspace, std::int64_t /*bytes*/) {
    return workspace;
}

}  // namespace dp::trainer
