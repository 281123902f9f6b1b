// SPDX-License-Identifier: Apache-2.0
//
// The owner of the socket at this host's end of a TCP connection to the broker, from the kernel's
// NETLINK_SOCK_DIAG (sock_diag(7), linux/inet_diag.h); see engine/peer_authorization.hpp.
#pragma once

#include "dp.pb.h"

namespace dp {

// The owner of the established connection's end at the client's address. The kernel answers at once. A
// closing or half-closed connection has no owner: its process may be gone, and another may get its port.
wire::Owner owner_of_client(const wire::WhoOwns& asked);

}  // namespace dp
