// SPDX-License-Identifier: Apache-2.0
//
// The ports that a step may use, in order. Pure, and equal on every node of the step: the broker's node binds
// the first free one, and a relay finds it by trying the same list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dp {

// The range of computed ports: above well-known services, below Linux's ephemeral range (32768 and up).
inline constexpr uint16_t kFirstPort = 20000;
inline constexpr uint16_t kLastPort = 32767;
inline constexpr size_t kCandidatePorts = 32;

struct PortRange {
    uint16_t first = 0;
    uint16_t last = 0;
    bool contains(uint16_t port) const { return port >= first && port <= last; }
};

// The inputs of the list.
struct PortSeed {
    uint32_t job_id = 0;
    uint32_t step_id = 0;
    uint32_t restart = 0;
    std::string reserved;  // SLURM_STEP_RESV_PORTS, "12000-12004,12010", or empty
};

// Reserved ports first (no other step shares them), then kCandidatePorts computed ones, no port twice.
std::vector<uint16_t> candidate_ports(const PortSeed& seed);

// The candidates in the order in which a node should try to bind them: those inside the node's own ephemeral
// range last, because an outgoing connection may own such a port already.
std::vector<uint16_t> binding_order(std::vector<uint16_t> candidates, PortRange ephemeral);

// One line if some of the reserved ports are among those; empty if not.
std::string ephemeral_warning(const std::string& reserved, PortRange ephemeral);

// /proc/sys/net/ipv4/ip_local_port_range; {0, 0} if it cannot be read.
PortRange read_ephemeral_range();

}  // namespace dp
