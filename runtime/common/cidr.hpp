// SPDX-License-Identifier: Apache-2.0
//
// Networks in CIDR notation (RFC 4632, RFC 4291): "10.1.0.0/16", "fd00:1::/64". Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dp {

// The bytes of a numeric address in network order, 4 for IPv4 and 16 for IPv6; nullopt if it is not one.
std::optional<std::vector<uint8_t>> address_bytes(const std::string& address);

struct Network {
    std::vector<uint8_t> address;  // 4 or 16 bytes, network order
    unsigned prefix = 0;           // bits
    // Whether it contains a numeric address of the same family.
    bool contains(const std::string& numeric) const;
};

std::optional<Network> parse_cidr(std::string_view text);

}  // namespace dp
