// SPDX-License-Identifier: Apache-2.0
//
// The CPU as a device: OpenBLAS for matrix products, plain loops for the rest. devices/open.cpp and the tests
// open it.
#ifndef TRAINER_DEVICES_CPU_HPP
#define TRAINER_DEVICES_CPU_HPP

#include <memory>

#include "trainer/devices/device.hpp"

namespace dp::trainer {

// `threads` is for OpenBLAS and holds for the whole process.
std::unique_ptr<Device> open_cpu(int threads);

}  // namespace dp::trainer

#endif
