// SPDX-License-Identifier: Apache-2.0
#include "common/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "common/address.hpp"

namespace dp {
namespace {

unsigned prefix_of(const sockaddr* mask) {
    int bits = 0;
    if (mask)
        for (uint8_t byte : address_bytes(numeric_address(mask))) bits += std::popcount(byte);
    return static_cast<unsigned>(bits);
}

bool is_link_local(const std::string& address) {
    return address.starts_with("169.254.") || address.starts_with("fe80:");
}

bool is_usable(const InterfaceAddress& one) {
    return one.up && !one.address.empty();
}

std::string names_of(const std::vector<InterfaceAddress>& all) {
    std::string out;
    for (const auto& one : all)
        if (is_usable(one) && !is_link_local(one.address))
            out += (out.empty() ? "" : ", ") + one.interface + " " + one.address + "/" +
                   std::to_string(one.prefix);
    return out.empty() ? "none that is up" : out;
}

}  // namespace

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1";
}

std::vector<std::string> reachable(std::vector<std::string> addresses) {
    std::erase_if(addresses, [](const std::string& a) { return is_loopback(a) || is_link_local(a); });
    return addresses;
}

std::vector<InterfaceAddress> all_interfaces() {
    ifaddrs* raw = nullptr;
    if (getifaddrs(&raw) != 0) return {};
    std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(raw, freeifaddrs);
    std::vector<InterfaceAddress> out;
    for (int family : {AF_INET, AF_INET6})
        for (ifaddrs* i = all.get(); i; i = i->ifa_next)
            if (i->ifa_addr && i->ifa_addr->sa_family == family)
                out.push_back({i->ifa_name, numeric_address(i->ifa_addr), prefix_of(i->ifa_netmask),
                               (i->ifa_flags & IFF_UP) != 0});
    for (ifaddrs* i = all.get(); i; i = i->ifa_next)
        if (std::none_of(out.begin(), out.end(),
                         [&](const auto& one) { return one.interface == i->ifa_name; }))
            out.push_back({i->ifa_name, "", 0, (i->ifa_flags & IFF_UP) != 0});
    std::stable_partition(out.begin(), out.end(), is_usable);
    return out;
}

std::vector<InterfaceAddress> interface_addresses() {
    auto all = all_interfaces();
    std::erase_if(all, [](const InterfaceAddress& one) { return !is_usable(one); });
    return all;
}

Try<InterfaceAddress> choose_interface(const std::string& wanted, const std::vector<InterfaceAddress>& all,
                                       const std::string& host, uint32_t nodes) {
    const auto network = parse_cidr(wanted);
    std::string why = host + " has no " + (network ? "address in that network" : "such interface");
    for (const auto& one : all) {
        if (network ? !network->contains(one.address) : one.interface != wanted) continue;
        if (!one.up)
            why = one.interface + " of " + host + " is down; bring it up there (ip link set " +
                  one.interface + " up)";
        else if (one.address.empty())
            why = one.interface + " of " + host + " has no address";
        else if (nodes == 1 || (!is_loopback(one.address) && !is_link_local(one.address)))
            return one;
        else
            why = "the other nodes cannot reach " + host + " there, it is loopback or link-local";
    }
    return fail("--dp-interface=" + wanted + ": " + why +
                (why.find(';') == std::string::npos ? "; give" : ", or give") +
                " a name or a network that every node of the step has (" + host + " has " + names_of(all) +
                ")");
}

std::vector<std::string> in_network_of(const InterfaceAddress& own, std::vector<std::string> addresses) {
    const auto network = parse_cidr(own.address + "/" + std::to_string(own.prefix));
    if (!network) return addresses;
    const auto elsewhere = std::stable_partition(addresses.begin(), addresses.end(),
                                                 [&](const auto& one) { return network->contains(one); });
    if (elsewhere != addresses.begin()) addresses.erase(elsewhere, addresses.end());
    return addresses;
}

}  // namespace dp
