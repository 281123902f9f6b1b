// SPDX-License-Identifier: Apache-2.0
//
// The CPU as a device: oneDNN for products and convolutions, plain loops for the rest. devices/open.cpp and
// the tests open it.
#pragma once

#include <memory>

#include "trainer/devices/device.hpp"
#include "trainer/devices/operation_log.hpp"

namespace dp::trainer {

// The CPU device's only tuned choice: the number of its threads, in digits.
inline constexpr const char* kThreadsChoice = "threads";
// The threads of a device with these choices; `otherwise` if they do not say.
int threads_of(const TunedChoices& choices, int otherwise);

// `threads` is for oneDNN and our loops, on the calling thread. With a log, which must outlive the device, its operations are
// logged (profiled.hpp).
std::unique_ptr<Device> open_cpu(int threads, OperationLog* log = nullptr);

}  // namespace dp::trainer
