// SPDX-License-Identifier: Apache-2.0
//
// A socket address as text without a port. Header only, no name service.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

namespace dp {

// Without the "::ffff:" that a dual-stack socket puts before an IPv4 address; "" for another family.
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

}  // namespace dp
