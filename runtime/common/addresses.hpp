// SPDX-License-Identifier: Apache-2.0
//
// Numeric addresses of hosts by name, for the plugin and dpctl (the daemon is static and resolves nothing).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/failure.hpp"

namespace dp {

// All addresses of a host, IPv4 first. Asks the system's resolver and takes as long as that does.
Try<std::vector<std::string>> resolve(const std::string& host);

// The addresses that another host can use: not loopback (Debian's installer maps the host name to 127.0.1.1),
// not link-local. Pure.
std::vector<std::string> reachable(std::vector<std::string> addresses);

// The address by which other nodes reach this host: the first usable one that its own name resolves to, else
// the first one of an interface that is up, else, if there is only one node, 127.0.0.1.
Try<std::string> own_address(const std::string& host, uint32_t nodes);

}  // namespace dp
