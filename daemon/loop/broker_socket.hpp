// SPDX-License-Identifier: Apache-2.0
//
// What both ends of a connection between a relay and the broker ask of TCP.
#pragma once

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/congestion.hpp"

namespace dp {

// A message goes at once. What is lost goes again after the same time each time, for six times: TCP would
// double the time, and a bad line that loses a packet seven times is then as silent as a node without power.
// Linux does so for streams of less than four packets in flight (Documentation/networking/tcp-thin.rst).
inline void prepare_broker_socket(int fd) {
    const int on = 1;
    for (const int option : {TCP_NODELAY, TCP_THIN_LINEAR_TIMEOUTS})
        setsockopt(fd, IPPROTO_TCP, option, &on, sizeof on);
    replace_bbr(fd);
}

// Whether something that was sent has not been acknowledged: it tells the peer that this side is there as
// well as a beat behind it would, which only makes the stream thicker.
inline bool is_on_its_way(int fd) {
    int bytes = 0;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace dp
