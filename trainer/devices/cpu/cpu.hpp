// SPDX-License-Identifier: Apache-2.0
//
// The CPU as a device: oneDNN for products and convolutions, plain loops for the rest. devices/open.cpp and
// the tests open it.
#ifndef TRAINER_DEVICES_CPU_CPU_HPP
#define TRAINER_DEVICES_CPU_CPU_HPP

#include <memory>

#include "trainer/devices/device.hpp"

namespace dp::trainer {

// The only choice that the CPU device has: how many of its threads it uses, in digits. Of oneDNN's choices
// oneDNN makes the best itself.
inline constexpr const char* kThreadsChoice = "threads";
// Of a device with these choices; `otherwise` where they say nothing of threads.
int threads_of(const TunedChoices& choices, int otherwise);

// `threads` is for oneDNN and our loops, of the calling thread.
std::unique_ptr<Device> open_cpu(int threads);

}  // namespace dp::trainer

#endif
