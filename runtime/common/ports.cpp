// SPDX-License-Identifier: Apache-2.0
#include "common/ports.hpp"

#include <algorithm>
#include <cstdio>

#include "base/text.hpp"
#include "common/read_file.hpp"

namespace dp {
namespace {

// SplitMix64 (Steele, Lea, Flood, 2014): adjacent jobs and steps start far apart.
uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

void add(std::vector<uint16_t>& ports, uint16_t port) {
    if (std::find(ports.begin(), ports.end(), port) == ports.end()) ports.push_back(port);
}

// A malformed list is no reason to fail: there are the computed ports.
std::vector<uint16_t> reserved_ports(const std::string& reserved) {
    std::vector<uint16_t> ports;
    for (std::string_view part : split(reserved, ',')) {
        const auto range = parse_range<uint16_t>(part);
        if (!range || range->first == 0) continue;
        for (uint32_t port = range->first; port <= range->second && ports.size() < 2 * kCandidatePorts;
             ++port)
            add(ports, static_cast<uint16_t>(port));
    }
    return ports;
}

}  // namespace

std::vector<uint16_t> candidate_ports(const PortSeed& seed) {
    std::vector<uint16_t> ports = reserved_ports(seed.reserved);
    constexpr uint64_t kSpan = kLastPort - kFirstPort + 1;
    uint64_t state = mix((uint64_t{seed.job_id} << 32 | seed.step_id) ^ mix(seed.restart));
    for (size_t wanted = ports.size() + kCandidatePorts; ports.size() < wanted; state = mix(state))
        add(ports, static_cast<uint16_t>(kFirstPort + state % kSpan));
    return ports;
}

std::vector<uint16_t> binding_order(std::vector<uint16_t> candidates, PortRange ephemeral) {
    std::stable_partition(candidates.begin(), candidates.end(),
                          [&](uint16_t port) { return !ephemeral.contains(port); });
    return candidates;
}

std::string ephemeral_warning(const std::string& reserved, PortRange ephemeral) {
    const auto ports = reserved_ports(reserved);
    if (std::none_of(ports.begin(), ports.end(), [&](uint16_t port) { return ephemeral.contains(port); }))
        return "";
    return "the ports that Slurm reserved for this step, " + printable(reserved, 60) +
           " (MpiParams in slurm.conf), lie in the ephemeral range of rank 0's node, " +
           std::to_string(ephemeral.first) + "-" + std::to_string(ephemeral.last) +
           " (net.ipv4.ip_local_port_range), where an outgoing connection may own them; other ports are "
           "tried "
           "first: tell the administrator to reserve ports outside that range";
}

PortRange read_ephemeral_range() {
    const std::string text = read_file("/proc/sys/net/ipv4/ip_local_port_range");
    unsigned first = 0;
    unsigned last = 0;
    if (std::sscanf(text.c_str(), "%u %u", &first, &last) != 2 || first > 65535 || last > 65535) return {};
    return {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
}

}  // namespace dp
