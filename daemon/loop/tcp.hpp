// SPDX-License-Identifier: Apache-2.0
//
// TCP: the numeric ends of a connection, and the options of one between a relay and the broker.
#pragma once

#include <arpa/inet.h>
#include <event2/util.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <optional>
#include <string>

#include "common/address.hpp"
#include "common/congestion.hpp"

namespace dp {

struct Endpoint {
    std::string address = "?";
    uint16_t port = 0;
};

// `which`: getsockname or getpeername.
inline Endpoint endpoint(int fd, int (*which)(int, sockaddr*, socklen_t*)) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (which(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
    // The port is at the same offset for both families.
    return {numeric_address(storage), ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port)};
}
inline Endpoint local_end(int fd) {
    return endpoint(fd, getsockname);
}
inline Endpoint peer_end(int fd) {
    return endpoint(fd, getpeername);
}

// The socket address of a numeric address and port; nullopt if the text is not an address.
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t size = 0;
};
inline std::optional<SocketAddress> socket_address(const std::string& numeric, uint16_t port) {
    SocketAddress out;
    int size = sizeof out.storage;
    if (evutil_parse_sockaddr_port(numeric.c_str(), reinterpret_cast<sockaddr*>(&out.storage), &size) != 0)
        return std::nullopt;
    out.size = static_cast<socklen_t>(size);
    reinterpret_cast<sockaddr_in&>(out.storage).sin_port = htons(port);  // at the same offset for both
    return out;
}

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
