// SPDX-License-Identifier: Apache-2.0
#include "common/addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace dp {
namespace {

std::string numeric(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = {};
    if (address->sa_family == AF_INET)
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
    else if (address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
    return text;
}

bool is_link_local(const std::string& address) {
    return address.rfind("169.254.", 0) == 0 || address.rfind("fe80:", 0) == 0;
}

std::vector<std::string> interface_addresses() {
    ifaddrs* raw = nullptr;
    if (getifaddrs(&raw) != 0) return {};
    std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(raw, freeifaddrs);
    std::vector<std::string> out;
    for (int family : {AF_INET, AF_INET6})
        for (ifaddrs* i = all.get(); i; i = i->ifa_next)
            if (i->ifa_addr && i->ifa_addr->sa_family == family && (i->ifa_flags & IFF_UP))
                out.push_back(numeric(i->ifa_addr));
    return out;
}

std::string first_usable(const std::vector<std::string>& addresses) {
    for (const auto& a : addresses)
        if (!a.empty() && !is_loopback(a) && !is_link_local(a)) return a;
    return "";
}

}  // namespace

Try<std::vector<std::string>> resolve(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* raw = nullptr;
    if (int error = getaddrinfo(host.c_str(), nullptr, &hints, &raw); error != 0)
        return fail("cannot resolve the host name " + host + ": " + gai_strerror(error));
    std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(raw, freeaddrinfo);
    std::vector<std::string> out;
    for (int family : {AF_INET, AF_INET6})
        for (addrinfo* i = all.get(); i; i = i->ai_next) {
            std::string text = i->ai_family == family ? numeric(i->ai_addr) : "";
            if (!text.empty() && std::find(out.begin(), out.end(), text) == out.end()) out.push_back(text);
        }
    if (out.empty()) return fail("the host name " + host + " has no address");
    return out;
}

bool is_loopback(const std::string& address) {
    return address.rfind("127.", 0) == 0 || address == "::1";
}

Try<std::string> own_address(const std::string& host, uint32_t nodes) {
    if (auto named = resolve(host)) {
        if (std::string found = first_usable(*named); !found.empty()) return found;
    }
    if (std::string found = first_usable(interface_addresses()); !found.empty()) return found;
    if (nodes == 1) return "127.0.0.1";
    return fail(
        "host " + host +
        " has no address that other nodes could reach: its name resolves to loopback and no interface is up");
}

}  // namespace dp
