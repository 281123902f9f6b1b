// SPDX-License-Identifier: Apache-2.0
//
// How fast the network is between two nodes of a step, in both directions, and how far apart their clocks are: over TCP, as MASTER_ADDR is used.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "base/fd.hpp"
#include "doctor/finding.hpp"

namespace dp::doctor {

// What the node `from` has measured with the node `to`.
struct Link {
    uint32_t from = 0, to = 0;
    double there = 0, back = 0;  // bytes per second
    double round_trip = 0;       // seconds, the shortest of some
    double ahead = 0;            // seconds by which `to`'s clock is ahead
    std::string problem;         // why the figures are missing
};

// That a connection belongs to this round of this run.
using LinkToken = std::array<uint64_t, 2>;

// Where partners come to. Not for several threads.
class LinkServer {
 public:
    // At this numeric address, on a port of the kernel's choice.
    static Try<LinkServer> open(const std::string& address);
    uint16_t port() const { return port_; }
    // Serves one partner; perhaps nobody comes.
    void serve(const LinkToken& token, std::chrono::milliseconds patience) const;

 private:
    Fd listener_;
    uint16_t port_ = 0;
};

// Measures with whoever serves there; takes up to some seconds if the link is bad. Without `from` and `to`.
Link measure_link(const std::string& address, uint16_t port, const LinkToken& token,
                  std::chrono::milliseconds patience);

// Slow links and nodes, and clocks that differ. `hosts`: by the nodes' numbers. Pure.
Findings check_links(const std::vector<Link>& links, const std::vector<std::string>& hosts);

}  // namespace dp::doctor
