// SPDX-License-Identifier: Apache-2.0
//
// Where a GPU is, by which parallel/world.cpp tells whether two ranks have one.
#pragma once

#include <string>

#include "trainer/devices/device.hpp"

namespace dp::trainer {

// The PCI address of a device that open_cuda (open.hpp) made; MIG instances of one GPU have the same. "" where CUDA does not say.
std::string place_of(const Device& cuda);

}  // namespace dp::trainer
