// SPDX-License-Identifier: Apache-2.0
//
// The memory that this process may still use: what the machine has left, and what its cgroups (a Slurm job's,
// a container's) leave it. Called by the CPU device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace dp::trainer {

// In bytes; nullopt if the system does not say. `proc` and `cgroups`: where the kernel shows them.
std::optional<std::int64_t> available_host_memory(const std::filesystem::path& proc = "/proc",
                                                  const std::filesystem::path& cgroups = "/sys/fs/cgroup");

}  // namespace dp::trainer
