// SPDX-License-Identifier: Apache-2.0
//
// The numeric addresses of both ends of a TCP connection, for messages and to tell a node its own address.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "common/numeric_address.hpp"

namespace dp {

inline std::string peer_address(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    return getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? numeric_address(address)
                                                                              : "?";
}

// The port is at the same offset for both families.
inline uint16_t port_of(const sockaddr_storage& address) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

inline uint16_t local_port(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    return getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? port_of(address) : 0;
}

inline uint16_t peer_port(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    return getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? port_of(address) : 0;
}

inline std::string local_address(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    return getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? numeric_address(address) : "";
}

// The socket address of a numeric address and port; nullopt if the text is not an address.
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t size = 0;
};
inline std::optional<SocketAddress> socket_address(const std::string& numeric, uint16_t port) {
    SocketAddress out;
    auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
    if (inet_pton(AF_INET, numeric.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        out.size = sizeof *v4;
        return out;
    }
    if (inet_pton(AF_INET6, numeric.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        out.size = sizeof *v6;
        return out;
    }
    return std::nullopt;
}

}  // namespace dp
