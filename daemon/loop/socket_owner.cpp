// SPDX-License-Identifier: Apache-2.0
#include "loop/socket_owner.hpp"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/fd.hpp"

namespace dp {
namespace {

// The kernel answers during the send; this only keeps a surprise from stopping the daemon.
constexpr timeval kPatience{1, 0};

struct Query {
    nlmsghdr header;
    inet_diag_req_v2 request;
};

std::optional<Query> make_query(const wire::WhoOwns& asked) {
    Query q{};
    q.header.nlmsg_len = sizeof q;
    q.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    q.header.nlmsg_flags = NLM_F_REQUEST;
    // IPv4 also finds sockets of IPv6 programs that are connected to a v4-mapped address.
    q.request.sdiag_family = asked.client_address().find(':') == std::string::npos ? AF_INET : AF_INET6;
    q.request.sdiag_protocol = IPPROTO_TCP;
    q.request.idiag_states = ~0U;
    q.request.id.idiag_sport = htons(static_cast<uint16_t>(asked.client_port()));
    q.request.id.idiag_dport = htons(static_cast<uint16_t>(asked.server_port()));
    q.request.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
    q.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (inet_pton(q.request.sdiag_family, asked.client_address().c_str(), q.request.id.idiag_src) != 1 ||
        inet_pton(q.request.sdiag_family, asked.server_address().c_str(), q.request.id.idiag_dst) != 1)
        return std::nullopt;
    return q;
}

// Whether the kernel's answer is about exactly that connection: if there is none, it answers with a socket
// that listens on the port. The socket of an IPv6 program shows v4-mapped addresses in their last 4 bytes.
bool same_ends(const inet_diag_msg& found, const inet_diag_req_v2& asked) {
    if (found.id.idiag_sport != asked.id.idiag_sport || found.id.idiag_dport != asked.id.idiag_dport)
        return false;
    if (found.idiag_family == asked.sdiag_family) {
        const size_t size = asked.sdiag_family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr);
        return std::memcmp(found.id.idiag_src, asked.id.idiag_src, size) == 0 &&
               std::memcmp(found.id.idiag_dst, asked.id.idiag_dst, size) == 0;
    }
    return found.idiag_family == AF_INET6 && found.id.idiag_src[3] == asked.id.idiag_src[0] &&
           found.id.idiag_dst[3] == asked.id.idiag_dst[0];
}

wire::Owner nobody(std::string problem) {
    wire::Owner out;
    out.set_problem(std::move(problem));
    return out;
}

wire::Owner kernel_failed(const char* what, int error) {
    return nobody(std::string("its node's kernel could not name the owner (") + what + ": " +
                  std::strerror(error) + ")");
}

wire::Owner look_up(const wire::WhoOwns& asked) {
    const auto query = make_query(asked);
    if (!query) return nobody("its addresses are not valid");
    Fd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!netlink) return kernel_failed("NETLINK_SOCK_DIAG", errno);
    setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    if (sendto(netlink.get(), &*query, sizeof *query, 0, reinterpret_cast<const sockaddr*>(&kernel),
               sizeof kernel) < 0)
        return kernel_failed("sendto", errno);
    alignas(nlmsghdr) char answer[4096];
    const ssize_t size = recv(netlink.get(), answer, sizeof answer, 0);
    if (size < 0) return kernel_failed("recv", errno);
    nlmsghdr header{};
    if (static_cast<size_t>(size) < sizeof header) return kernel_failed("recv", EBADMSG);
    std::memcpy(&header, answer, sizeof header);
    if (header.nlmsg_type == NLMSG_ERROR) {
        nlmsgerr error{};
        if (static_cast<size_t>(size) < NLMSG_HDRLEN + sizeof error) return kernel_failed("recv", EBADMSG);
        std::memcpy(&error, answer + NLMSG_HDRLEN, sizeof error);
        // A kernel without tcp_diag says this, too.
        if (error.error == -ENOENT) return nobody("no process of its node has it open any more");
        return kernel_failed("NETLINK_SOCK_DIAG", -error.error);
    }
    inet_diag_msg found{};
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || static_cast<size_t>(size) < NLMSG_HDRLEN + sizeof found)
        return kernel_failed("recv", EBADMSG);
    std::memcpy(&found, answer + NLMSG_HDRLEN, sizeof found);
    if (found.idiag_state != TCP_ESTABLISHED || !same_ends(found, query->request))
        return nobody("no process of its node has it open any more");
    wire::Owner owner;
    owner.set_uid(found.idiag_uid);
    return owner;
}

}  // namespace

wire::Owner owner_of_client(const wire::WhoOwns& asked) {
    wire::Owner owner = look_up(asked);
    owner.set_connection(asked.connection());
    return owner;
}

}  // namespace dp
