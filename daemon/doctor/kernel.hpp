// SPDX-License-Identifier: Apache-2.0
//
// The kernel's limits and settings that decide whether a training runs.
#pragma once

#include <sys/resource.h>

#include <optional>
#include <string>

#include "common/ports.hpp"
#include "findings/finding.hpp"

namespace dp::doctor {

struct KernelFacts {
    rlimit locked_memory{RLIM_INFINITY, RLIM_INFINITY};  // bytes
    rlimit open_files{RLIM_INFINITY, RLIM_INFINITY};
    rlimit processes{RLIM_INFINITY, RLIM_INFINITY};  // of the user
    rlimit core_size{0, RLIM_INFINITY};              // bytes
    bool is_root = false;
    bool has_rdma = false;
    std::string core_pattern = "core";
    std::optional<int> ptrace_scope;  // yama's; nullopt: the kernel has no yama
    PortRange ephemeral{32768, 60999};
    std::string huge_pages, huge_pages_defrag;  // the chosen words: "always", "madvise", "never"
    std::optional<bool> is_clock_synchronized;
};

// Below `root`, except the process's own limits.
KernelFacts read_kernel(const std::string& root);
Findings check_kernel(const KernelFacts& facts);

}  // namespace dp::doctor
