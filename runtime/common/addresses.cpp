// SPDX-License-Identifier: Apache-2.0
#include "common/addresses.hpp"

#include <netdb.h>

#include <algorithm>
#include <memory>

#include "common/interfaces.hpp"
#include "common/numeric_address.hpp"

namespace dp {

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
            std::string text = i->ai_family == family ? numeric_address(i->ai_addr) : "";
            if (!text.empty() && std::find(out.begin(), out.end(), text) == out.end()) out.push_back(text);
        }
    if (out.empty()) return fail("the host name " + host + " has no address");
    return out;
}

std::vector<std::string> reachable(std::vector<std::string> addresses) {
    std::erase_if(addresses, [](const std::string& a) { return is_loopback(a) || is_link_local(a); });
    return addresses;
}

Try<std::string> own_address(const std::string& host, uint32_t nodes) {
    if (auto named = resolve(host))
        if (auto usable = reachable(*named); !usable.empty()) return usable.front();
    std::vector<std::string> local;
    for (const auto& one : interface_addresses()) local.push_back(one.address);
    if (auto usable = reachable(local); !usable.empty()) return usable.front();
    if (nodes == 1) return "127.0.0.1";
    return fail(
        "host " + host +
        " has no address that other nodes could reach: its name resolves to loopback and no interface is up");
}

}  // namespace dp
