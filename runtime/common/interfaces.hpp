// SPDX-License-Identifier: Apache-2.0
//
// This host's network interfaces, and the choice among them (--dp-interface).
#pragma once

#include <cstdint>
#include <vector>

#include "base/failure.hpp"

namespace dp {

struct InterfaceAddress {
    std::string interface;  // "eth0"
    std::string address;    // numeric; "" where it has none
    unsigned prefix = 0;    // bits of its network
    bool up = true;
    bool operator==(const InterfaceAddress&) const = default;
};

// Addresses of interfaces that are up, IPv4 first.
std::vector<InterfaceAddress> interface_addresses();
// And then those that are down, and an entry without an address for each that has none.
std::vector<InterfaceAddress> all_interfaces();

// The address of `wanted`, an interface's name or a network in CIDR notation; in a step of several nodes
// never one that the others cannot reach (loopback, link-local). The failure says what is wrong
// with the one that was meant, and what this host has instead. Pure.
Try<InterfaceAddress> choose_interface(const std::string& wanted, const std::vector<InterfaceAddress>& all,
                                       const std::string& host, uint32_t nodes);

// The addresses of another host that are in the network of `own`, or all of them if none is. Pure.
std::vector<std::string> in_network_of(const InterfaceAddress& own, std::vector<std::string> addresses);

bool is_loopback(const std::string& address);

// The addresses that another host can use: not loopback (Debian's installer maps the host name to 127.0.1.1),
// not link-local. Pure.
std::vector<std::string> reachable(std::vector<std::string> addresses);

}  // namespace dp
