// SPDX-License-Identifier: Apache-2.0
//
// How fast the network is between two nodes of a step, in both directions, and how far apart their clocks are: over TCP, as MASTER_ADDR is used.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "base/failure.hpp"
#include "base/fd.hpp"
#include "findings/link_check.hpp"

namespace dp::doctor {

// For one link. Who waits for a partner waits for one that begins a little later, too.
inline constexpr std::chrono::milliseconds kLinkPatience{3000}, kServePatience{3500};

// That a connection belongs to this round of this run.
using LinkToken = std::array<uint64_t, 2>;

// Where partners come to. Not for several threads.
class LinkServer {
 public:
    // At this numeric address, on a port of the kernel's choice.
    static Try<LinkServer> open(const std::string& address);
    // One that listens already.
    LinkServer(Fd listener, uint16_t port) : listener_(std::move(listener)), port_(port) {}
    uint16_t port() const { return port_; }
    // Serves one partner; perhaps nobody comes.
    void serve(const LinkToken& token, std::chrono::milliseconds patience) const;

 private:
    LinkServer() = default;
    Fd listener_;
    uint16_t port_ = 0;
};

// Measures with whoever serves there; takes up to some seconds if the link is bad. Without `from` and `to`.
Link measure_link(const std::string& address, uint16_t port, const LinkToken& token,
                  std::chrono::milliseconds patience);

}  // namespace dp::doctor
