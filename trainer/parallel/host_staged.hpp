// SPDX-License-Identifier: Apache-2.0
//
// All-reduce and all-gather of GPU tensors through host memory, for ranks that share a GPU, which NCCL refuses.
#pragma once

#include <memory>

#include "trainer/base/communicator.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// Over a communicator for tensors in host memory. The device must outlive it.
std::unique_ptr<Communicator> make_host_staged(std::unique_ptr<Communicator> between_hosts, Device& device);

}  // namespace dp::trainer
