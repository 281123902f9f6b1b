// SPDX-License-Identifier: Apache-2.0
//
// Numeric addresses of hosts, for the plugin and dpctl (the daemon is static and resolves nothing).
#pragma once

#include <string>
#include <vector>

#include "common/result.hpp"

namespace dp {

// All addresses of a host, IPv4 first. Asks the system's resolver, so it may take as long as that takes.
Try<std::vector<std::string>> resolve(const std::string& host);

bool is_loopback(const std::string& address);

// The address by which other nodes reach this host: the first that its own name resolves to and that is not
// loopback, else the first of an interface that is up (Debian's installer maps the host name to 127.0.1.1),
// else, where there is only one node, 127.0.0.1.
Try<std::string> own_address(const std::string& host, uint32_t nodes);

}  // namespace dp
