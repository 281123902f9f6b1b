// SPDX-License-Identifier: Apache-2.0
//
// This host's name, its address for the other nodes of a step, and the network behind that.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/interfaces.hpp"
#include "findings/finding.hpp"

namespace dp::doctor {

struct Interface {
    InterfaceAddress address;
    uint32_t mtu = 0;
    std::optional<uint32_t> megabits;  // per second; virtual interfaces have none
    bool has_carrier = true;
};

// A port of an RDMA adapter.
struct RdmaPort {
    std::string name;   // "mlx5_0 port 1"
    std::string state;  // "ACTIVE"
    std::string link;   // "LinkUp"
    std::string rate;   // "200 Gb/sec (4X HDR)"
};

struct NetworkFacts {
    std::string host;
    std::vector<std::string> addresses;  // of that name, as this host resolves it
    std::string resolver_problem;        // if it does not
    std::vector<Interface> interfaces;
    std::vector<RdmaPort> rdma_ports;
};

// /sys below `root`.
std::vector<RdmaPort> read_rdma_ports(const std::string& root);
NetworkFacts read_network(const std::string& root);
Findings check_network(const NetworkFacts& facts);
// Of the interface with this address, else of the one on which MASTER_ADDR would be.
std::optional<uint32_t> mtu_for_others(const NetworkFacts& facts, const std::string& address = "");

}  // namespace dp::doctor
