// SPDX-License-Identifier: Apache-2.0
//
// As many clients of a loopback server as a world has ranks, all in this process. Each connects, sends what
// its script says, and checks the answers byte for byte. Every failure prints a line and ends the program.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dp::bench {

struct Exchange {
    std::string say;
    std::string hear;  // may be empty: there is no reply
};
using Script = std::vector<Exchange>;

sockaddr_in on_loopback(uint16_t port);

// Where the clients come from. The ephemeral ports of one address run out slowly, and the search for a free
// one gets long before; but a server may know its clients by their address.
enum class Sources { spread, one_address };

// All connect at once. → for each the ms from the common start to the last byte of its script.
std::vector<double> converse(const sockaddr_in& server, const std::vector<Script>& scripts, Sources sources);

}  // namespace dp::bench
