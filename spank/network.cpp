// SPDX-License-Identifier: Apache-2.0
//
// The address of a node for the other nodes of the step, and where a relay looks for the broker. Called in
// task_init, because the name service may take its time.
extern "C" {
#include <slurm/slurm.h>
}

#include <netdb.h>

#include <algorithm>
#include <memory>

#include "common/address.hpp"
#include "common/hostlist.hpp"
#include "state.hpp"

namespace dp::plugin {
namespace {

using Addresses = std::vector<std::string>;

// All addresses of a host, IPv4 first. Asks the system's resolver and takes as long as that does.
Try<Addresses> resolve(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* raw = nullptr;
    if (int error = getaddrinfo(host.c_str(), nullptr, &hints, &raw); error != 0)
        return fail("cannot resolve the host name " + host + ": " + gai_strerror(error));
    std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(raw, freeaddrinfo);
    Addresses out;
    for (int family : {AF_INET, AF_INET6})
        for (addrinfo* i = all.get(); i; i = i->ai_next) {
            std::string text = i->ai_family == family ? numeric_address(i->ai_addr) : "";
            if (!text.empty() && std::find(out.begin(), out.end(), text) == out.end()) out.push_back(text);
        }
    if (out.empty()) return fail("the host name " + host + " has no address");
    return out;
}

Addresses reachable_addresses_of(const std::string& host) {
    return reachable(resolve(host).value_or(Addresses()));
}

// A NodeName need not be a host name: slurm.conf may give its NodeAddr.
std::string node_addr_of(const std::string& node) {
    node_info_msg_t* info = nullptr;
    if (slurm_load_node_single(&info, const_cast<char*>(node.c_str()), 0) != SLURM_SUCCESS) return node;
    std::string address = node;
    if (info->record_count > 0 && info->node_array[0].node_addr) address = info->node_array[0].node_addr;
    slurm_free_node_info_msg(info);
    return address;
}

// The addresses of another node, by its name in the site's fast network if there is one.
Try<Addresses> addresses_of(const std::string& node, const std::string& suffix) {
    if (!suffix.empty())
        if (auto fast = reachable_addresses_of(node + suffix); !fast.empty()) return fast;
    const auto named = resolve(node);
    if (named)
        if (auto usable = reachable(*named); !usable.empty()) return usable;
    if (auto known = reachable_addresses_of(node_addr_of(node)); !known.empty()) return known;
    if (!named) return tl::unexpected(named.error());
    return fail(
        "the host name " + node +
        " resolves to loopback addresses only here; correct this node's /etc/hosts or DNS, or give NodeAddr "
        "in slurm.conf");
}

}  // namespace

Try<std::string> address_of_node(const State& s) {
    if (s.interface) return s.interface->address;
    const std::string& host = s.facts.host;
    if (!s.site.host_suffix.empty()) {
        const std::string fast = host + s.site.host_suffix;
        if (auto usable = reachable_addresses_of(fast); !usable.empty()) return usable.front();
        slurm_info("slurm-dp: %s has no usable address; %s is used (host-suffix=%s in plugstack.conf)",
                   fast.c_str(), host.c_str(), s.site.host_suffix.c_str());
    }
    if (auto usable = reachable_addresses_of(host); !usable.empty()) return usable.front();
    Addresses local;
    for (const auto& one : interface_addresses()) local.push_back(one.address);
    if (auto usable = reachable(local); !usable.empty()) return usable.front();
    if (s.facts.nodes == 1) return "127.0.0.1";
    return fail("host " + host +
                " has no address that other nodes could reach: its name resolves to loopback, and no other "
                "interface is up");
}

Try<Addresses> broker_addresses(const State& s) {
    const StepFacts& f = s.facts;
    Addresses hosts = {f.rank_zero_host()};
    if (f.heterogeneous) {
        // The broker is on one of them; the proof of the secret tells on which.
        hosts = DP_TRY(expand_hostlist(f.node_list));
    } else if (hosts.front().empty()) {
        return fail("the host of rank 0 is unknown on " + f.host +
                    ": Slurm gave the step no list of its nodes");
    }
    Addresses addresses;
    for (const auto& host : hosts) {
        Addresses some = DP_TRY(addresses_of(host, s.site.host_suffix));
        // A relay tries all that it is given, and an address in another network may answer first.
        if (s.interface) some = in_network_of(*s.interface, std::move(some));
        addresses.insert(addresses.end(), some.begin(), some.end());
    }
    return addresses;
}

}  // namespace dp::plugin
