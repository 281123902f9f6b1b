// SPDX-License-Identifier: Apache-2.0
//
// TCP options for both ends of a connection between a relay and the broker.
#pragma once

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/congestion.hpp"

namespace dp {

// Sends messages at once, and retransmits after the same time six times: TCP would double the time, and a bad
// line that loses seven packets would look as silent as a node without power. Linux does this for streams
// with fewer than four packets in flight (Documentation/networking/tcp-thin.rst).
inline void prepare_broker_socket(int fd) {
    const int on = 1;
    for (const int option : {TCP_NODELAY, TCP_THIN_LINEAR_TIMEOUTS})
        setsockopt(fd, IPPROTO_TCP, option, &on, sizeof on);
    replace_bbr(fd);
}

// Whether sent data is unacknowledged: it tells the peer that this side is alive as well as a heartbeat after
// it would, and that would only make the stream less thin.
inline bool is_on_its_way(int fd) {
    int bytes = 0;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace dp
