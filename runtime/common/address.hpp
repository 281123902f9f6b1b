// SPDX-License-Identifier: Apache-2.0
//
// Numeric addresses, and networks in CIDR notation (RFC 4632, RFC 4291): "10.1.0.0/16", "fd00:1::/64". Pure.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/text.hpp"

namespace dp {

// A socket address without port and a dual-stack socket's "::ffff:" before IPv4; "" for another family.
inline std::string numeric_address(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = {};
    if (address->sa_family == AF_INET)
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
    else if (address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
    std::string_view plain(text);
    if (plain.rfind("::ffff:", 0) == 0 && plain.find('.') != std::string_view::npos) plain.remove_prefix(7);
    return std::string(plain);
}
inline std::string numeric_address(const sockaddr_storage& address) {
    return numeric_address(reinterpret_cast<const sockaddr*>(&address));
}

// The bytes of a numeric address in network order, 4 for IPv4 and 16 for IPv6; none if it is not one.
inline std::vector<uint8_t> address_bytes(const std::string& address) {
    std::vector<uint8_t> bytes(16);
    if (inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1) return bytes;
    bytes.resize(inet_pton(AF_INET, address.c_str(), bytes.data()) == 1 ? 4 : 0);
    return bytes;
}

struct Network {
    std::vector<uint8_t> address;  // 4 or 16 bytes, network order
    unsigned prefix = 0;           // bits

    // Whether it contains a numeric address of the same family.
    bool contains(const std::string& numeric) const {
        const std::vector<uint8_t> other = address_bytes(numeric);
        if (other.size() != address.size()) return false;
        for (unsigned bit = 0; bit < prefix; ++bit)
            if (((address[bit / 8] ^ other[bit / 8]) & (0x80u >> (bit % 8))) != 0) return false;
        return true;
    }
};

inline std::optional<Network> parse_cidr(std::string_view text) {
    const size_t slash = text.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    auto address = address_bytes(std::string(text.substr(0, slash)));
    const auto prefix = parse_number<unsigned>(text.substr(slash + 1));
    if (address.empty() || !prefix || *prefix > address.size() * 8) return std::nullopt;
    return Network{std::move(address), *prefix};
}

}  // namespace dp
