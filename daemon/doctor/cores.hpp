// SPDX-License-Identifier: Apache-2.0
//
// The CPUs that a program has here: how many, how fast they may run, and how fast their memory is.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "findings/finding.hpp"

namespace dp::doctor {

struct CoreFacts {
    uint32_t online = 0;                        // CPUs of the machine
    uint32_t allowed = 0;                       // to this process
    std::string model;                          // of the first one; "" if the machine does not say
    std::optional<bool> has_smt;                // two hardware threads a core, in use
    std::optional<double> quota;                // CPUs' worth of time that the cgroup allows
    double throttled_seconds = 0;               // that the cgroup has been kept waiting so far
    std::string cgroup;                         // the one with that quota: "/system.slice/slurmd.service"
    int cgroup_version = 0;                     // 0: there is none
    std::set<std::string> governors;            // of the allowed CPUs' frequencies; none in virtual machines
    std::string frequency_driver;               // "intel_pstate"
    double slowest_core = 0, fastest_core = 0;  // flop/s when all multiply matrices at once; 0: not measured
    uint64_t slowed_by_heat = 0;                // how often cores slowed down while this looked
    std::vector<double>
        memory_bandwidth;  // bytes per second, by NUMA node: of copying on one core; 0: not measured
};

CoreFacts read_cores(const std::string& root, Depth depth = Depth::all);
Findings check_cores(const CoreFacts& facts);

}  // namespace dp::doctor
