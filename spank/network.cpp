// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

extern "C" {
#include <slurm/slurm.h>
}

#include "common/addresses.hpp"
#include "common/hostlist.hpp"
#include "common/interfaces.hpp"

namespace dp::plugin {
namespace {

// A NodeName need not be a host name: slurm.conf may give its NodeAddr.
std::string node_addr_of(const std::string& node) {
    node_info_msg_t* info = nullptr;
    if (slurm_load_node_single(&info, const_cast<char*>(node.c_str()), 0) != SLURM_SUCCESS) return "";
    std::string address;
    if (info->record_count > 0 && info->node_array[0].node_addr) address = info->node_array[0].node_addr;
    slurm_free_node_info_msg(info);
    return address;
}

// The addresses of another node, by its name in the site's fast network if there is one.
Try<std::vector<std::string>> addresses_of(const std::string& node, const std::string& suffix) {
    if (!suffix.empty())
        if (auto fast = resolve(node + suffix))
            if (auto usable = reachable(*fast); !usable.empty()) return usable;
    auto named = resolve(node);
    if (named)
        if (auto usable = reachable(*named); !usable.empty()) return usable;
    if (const std::string address = node_addr_of(node); !address.empty() && address != node)
        if (auto known = resolve(address))
            if (auto usable = reachable(*known); !usable.empty()) return usable;
    if (!named) return tl::unexpected(named.error());
    return fail(
        "the host name " + node +
        " resolves to loopback addresses only here; mend this node's /etc/hosts or DNS, or give NodeAddr "
        "in slurm.conf");
}

}  // namespace

Try<std::string> address_of_node(const State& s) {
    if (s.interface) return s.interface->address;
    if (!s.site.host_suffix.empty()) {
        const std::string fast = s.facts.host + s.site.host_suffix;
        if (auto named = resolve(fast))
            if (auto usable = reachable(*named); !usable.empty()) return usable.front();
        slurm_info("slurm-dp: %s has no usable address; %s is used (host-suffix=%s in plugstack.conf)",
                   fast.c_str(), s.facts.host.c_str(), s.site.host_suffix.c_str());
    }
    return own_address(s.facts.host, s.facts.nodes);
}

Try<std::vector<std::string>> broker_addresses(const State& s) {
    const StepFacts& f = s.facts;
    std::vector<std::string> hosts = {f.rank_zero_host()};
    if (f.heterogeneous) {
        // The broker is on one of them; the proof of the secret tells on which.
        auto all = DP_TRY(expand_hostlist(f.node_list));
        hosts = all;
    } else if (hosts.front().empty()) {
        return fail("the host of rank 0 is unknown on " + f.host +
                    ": Slurm gave the step no list of its nodes");
    }
    std::vector<std::string> addresses;
    for (const auto& host : hosts) {
        auto some = DP_TRY(addresses_of(host, s.site.host_suffix));
        addresses.insert(addresses.end(), some.begin(), some.end());
    }
    return s.interface ? nearest_first(std::move(addresses), *s.interface) : addresses;
}

}  // namespace dp::plugin
