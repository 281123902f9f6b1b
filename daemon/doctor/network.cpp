// SPDX-License-Identifier: Apache-2.0
#include "doctor/network.hpp"

#include <netdb.h>

#include <algorithm>
#include <memory>

#include "base/host_name.hpp"
#include "base/text.hpp"
#include "common/address.hpp"
#include "doctor/apart.hpp"
#include "tiles/sysfs.hpp"

namespace dp::doctor {
namespace {

constexpr std::chrono::seconds kResolverPatience{5};
// Ethernet has 1500; clouds and tunnels take up to a hundred of it.
constexpr uint32_t kEthernetMtu = 1500, kSmallMtu = 1400, kSlowMegabits = 1000;

// One address a line; a line "!WHY" if there is none.
std::string resolve(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* raw = nullptr;
    if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &raw); error != 0)
        return std::string("!") + gai_strerror(error);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(raw, freeaddrinfo);
    std::vector<std::string> found;
    for (const addrinfo* one = all.get(); one; one = one->ai_next)
        if (auto text = numeric_address(one->ai_addr);
            !text.empty() && std::ranges::find(found, text) == found.end())
            found.push_back(std::move(text));
    return join(found, "\n");
}

// What the plugin gives to the other nodes: the address of the host's name, else the first that an interface has.
const Interface* interface_for_others(const NetworkFacts& facts) {
    const auto has = [&](const std::string& address) {
        return std::ranges::find_if(facts.interfaces,
                                    [&](const Interface& one) { return one.address.address == address; });
    };
    for (const auto& address : reachable(facts.addresses))
        if (const auto found = has(address); found != facts.interfaces.end()) return &*found;
    for (const Interface& one : facts.interfaces)
        if (one.address.up && !one.address.address.empty() && !reachable({one.address.address}).empty())
            return &one;
    return nullptr;
}

Finding check_name(const NetworkFacts& facts) {
    const Interface* const there = interface_for_others(facts);
    const std::string address = there ? there->address.address : "ADDRESS";
    if (!facts.resolver_problem.empty())
        return fault(
            "host name", facts.host + " does not resolve: " + facts.resolver_problem,
            "Gloo, MPI and NCCL's bootstrap look up their own host name first",
            fmt::format("echo '{} {}' >> /etc/hosts, or correct its DNS entry", address, facts.host));
    const std::string seen = facts.host + " is " + join(facts.addresses, ", ");
    const auto usable = reachable(facts.addresses);
    if (usable.empty() && there)
        return warning("host name", seen,
                       "programs that give others the address of their own name (Gloo, MPI, Ray) give them "
                       "one that leads to "
                       "themselves",
                       fmt::format("put {} in its place in /etc/hosts", address));
    const bool is_own = std::ranges::any_of(usable, [&](const std::string& one) {
        return std::ranges::any_of(facts.interfaces,
                                   [&](const Interface& i) { return i.address.address == one; });
    });
    if (!usable.empty() && !is_own)
        return fault("host name", seen + ", which no interface of this host has",
                     "ranks would look for this host at another one, or at none",
                     fmt::format("put {} in its place in /etc/hosts, or correct its DNS entry", address));
    return ok("host name", seen);
}

Finding check_interface(const NetworkFacts& facts) {
    const Interface* const there = interface_for_others(facts);
    if (!there)
        return warning("network", "no interface that is up has an address that others could reach",
                       "steps of several nodes cannot meet; one node alone works",
                       "ip addr; ip link set INTERFACE up");
    const std::string& name = there->address.interface;
    const std::string seen = fmt::format("{} {}/{}, MTU {}{}; MASTER_ADDR would be there", name,
                                         there->address.address, there->address.prefix, there->mtu,
                                         there->megabits ? fmt::format(", {} Mbit/s", *there->megabits) : "");
    if (!there->has_carrier)
        return fault("network", seen + "; it has no carrier", "no other node can be reached",
                     "its cable or switch port; ip link show " + name);
    if (there->mtu < kSmallMtu)
        return warning("network", seen,
                       "small packets cost bandwidth; if the other nodes send larger ones, a connection "
                       "stands and hangs in its first large message",
                       fmt::format("compare it with the other nodes (ip link show {0}) and give it theirs "
                                   "(ip link set {0} mtu 1500)",
                                   name));
    if (there->megabits && *there->megabits < kSlowMegabits)
        return warning("network", seen,
                       "gradients take as long as this allows; it may have agreed on less than it can",
                       "its cable or switch port; ethtool " + name + "; another network: --dp-interface");
    return ok("network", seen);
}

Findings check_rdma(const NetworkFacts& facts) {
    Findings found;
    for (const RdmaPort& port : facts.rdma_ports) {
        const std::string check = "RDMA " + port.name;
        const std::string seen = fmt::format("{}, {}, {}", port.state, port.link, port.rate);
        if (port.state == "ACTIVE")
            found.push_back(ok(check, seen));
        else if (port.link == "LinkUp")
            found.push_back(
                fault(check, seen,
                      "the link is up, but no subnet manager has activated the port: NCCL uses TCP there, "
                      "or fails",
                      "systemctl status opensm, on the node or switch that should run it; ibstat"));
        else
            found.push_back(warning(
                check, seen, "if a cable should be there, it is broken: NCCL uses the other ports, or TCP",
                "ibstat; if nothing is connected on purpose, nothing"));
    }
    return found;
}

}  // namespace

std::vector<RdmaPort> read_rdma_ports(const std::string& root) {
    std::vector<RdmaPort> ports;
    const std::string adapters = root + "/sys/class/infiniband";
    for (const auto& adapter : list_folder(adapters).value_or(std::vector<std::string>()))
        for (const auto& port :
             list_folder(adapters + "/" + adapter + "/ports").value_or(std::vector<std::string>())) {
            const auto word = [folder = adapters + "/" + adapter + "/ports/" + port](const char* file) {
                return read_word(folder + file).value_or("");
            };
            const auto behind_number = [](const std::string& text) {
                const size_t at = text.find(": ");
                return printable(at == text.npos ? text : text.substr(at + 2), 40);
            };
            ports.push_back({printable(adapter + " port " + port, 40), behind_number(word("/state")),
                             behind_number(word("/phys_state")), printable(word("/rate"), 40)});
        }
    std::ranges::sort(ports, {}, &RdmaPort::name);
    return ports;
}

NetworkFacts read_network(const std::string& root) {
    NetworkFacts facts;
    facts.host = printable(host_name(), 80);
    const auto resolved = apart([&] { return resolve(facts.host); }, kResolverPatience);
    if (!resolved)
        facts.resolver_problem = resolved.error().message;
    else if (resolved->starts_with('!') || resolved->empty())
        facts.resolver_problem = resolved->empty() ? "it has no address" : printable(resolved->substr(1));
    else
        for (const auto address : split(*resolved, '\n')) facts.addresses.emplace_back(address);
    const auto word = [&](const std::string& path) { return read_word(root + path).value_or(""); };
    for (const InterfaceAddress& address : all_interfaces()) {
        const std::string folder = "/sys/class/net/" + address.interface;
        Interface& one = facts.interfaces.emplace_back();
        one.address = address;
        one.mtu = parse_number<uint32_t>(word(folder + "/mtu")).value_or(kEthernetMtu);
        one.megabits = parse_number<uint32_t>(word(folder + "/speed"));
        one.has_carrier = word(folder + "/carrier") != "0";
    }
    facts.rdma_ports = read_rdma_ports(root);
    return facts;
}

std::optional<uint32_t> mtu_for_others(const NetworkFacts& facts, const std::string& address) {
    for (const Interface& one : facts.interfaces)
        if (!address.empty() && one.address.address == address) return one.mtu;
    const Interface* const there = interface_for_others(facts);
    return there ? std::optional(there->mtu) : std::nullopt;
}

Findings check_network(const NetworkFacts& facts) {
    Findings found{check_name(facts), check_interface(facts)};
    for (Finding& one : check_rdma(facts)) found.push_back(std::move(one));
    return found;
}

}  // namespace dp::doctor
