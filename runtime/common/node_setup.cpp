// SPDX-License-Identifier: Apache-2.0
#include "common/node_setup.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/errno_text.hpp"
#include "base/unix_socket.hpp"
#include "common/hostlist.hpp"
#include "common/socket_names.hpp"

namespace dp {
namespace {

constexpr int kRanksBacklog = 4096;      // all ranks of a node at once; the kernel cuts it to somaxconn
constexpr int kBrokerBacklog = 4096;     // all nodes of a step at once
constexpr int kControlBuffer = 1 << 20;  // two packets a task may wait before the daemon runs

Try<std::string> random_hex(size_t bytes) {
    std::vector<unsigned char> raw(bytes);
    // The kernel gives up to 256 bytes at once (getrandom(2)).
    if (getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size()))
        return fail("the kernel gives no random bytes: " + errno_text(errno));
    std::string out;
    for (unsigned char byte : raw)
        for (const int digit : {byte >> 4, byte & 15}) out += "0123456789abcdef"[digit];
    return out;
}

// A TCP socket bound exclusively to the port on every address; on failure errno is set.
Fd bind_exclusively(uint16_t port) {
    const auto bound = [](int family, const auto& any) {
        Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const int off = 0;
        if (fd && family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (fd && bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0) return fd;
        const int why = errno;
        fd.reset();
        errno = why;
        return fd;
    };
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    Fd fd = bound(AF_INET6, any);
    if (fd || errno == EADDRINUSE || errno == EACCES) return fd;
    // No IPv6 in this kernel or namespace.
    sockaddr_in any_of_ipv4{};
    any_of_ipv4.sin_family = AF_INET;
    any_of_ipv4.sin_port = htons(port);
    return bound(AF_INET, any_of_ipv4);
}

template <typename Finish>
Try<BoundPort> first_free(const std::vector<uint16_t>& candidates, const char* purpose, Finish finish) {
    int last_error = 0;
    for (uint16_t port : candidates) {
        Fd fd = bind_exclusively(port);
        if (fd && finish(fd.get())) return BoundPort{std::move(fd), port};
        last_error = errno;
        // Out of descriptors or memory: another port will not help.
        if (out_of_descriptors(last_error) || last_error == ENOMEM || last_error == ENOBUFS) break;
    }
    if (last_error == EADDRINUSE && candidates.size() == 1)
        return fail("port " + std::to_string(candidates[0]) + " for " + purpose +
                    " is in use on this node (--dp-port); give another one, or --dp-port=auto");
    if (last_error == EADDRINUSE || last_error == 0) {
        std::vector<uint32_t> ports(candidates.begin(), candidates.end());
        return fail("no free port for " + std::string(purpose) + ": all " +
                    std::to_string(candidates.size()) + " candidates are in use (ports " +
                    compress_ranks(ports) +
                    "); end what listens there (ss -ltnp), or let Slurm reserve ports (MpiParams=ports=A-B)");
    }
    return fail("cannot bind a port for " + std::string(purpose) + ": " + errno_text(last_error));
}

Try<void> bind_ports(NodeSetup& node, const PortWishes& ports) {
    const std::vector<uint16_t> order = binding_order(ports.candidates, ports.ephemeral);
    const auto bind_master = [&](const std::vector<uint16_t>& candidates) -> Try<void> {
        node.master = DP_TRY(ports.serve_master ? listen_on_first_free(candidates, "MASTER_PORT")
                                                : hold_first_free(candidates, "MASTER_PORT"));
        return {};
    };
    // A port that the user insists on comes first, because the others might take it; else the broker's, which
    // the relays then find at their first try.
    if (ports.master) DP_TRY(bind_master({ports.master}));
    node.broker = DP_TRY(listen_on_first_free(order, "the rendezvous daemon"));
    if (!ports.master) DP_TRY(bind_master(order));
    node.coordinator = DP_TRY(hold_first_free(order, "a coordinator"));
    return {};
}

}  // namespace

Try<BoundPort> listen_on_first_free(const std::vector<uint16_t>& candidates, const char* purpose) {
    return first_free(candidates, purpose, [](int fd) { return listen(fd, kBrokerBacklog) == 0; });
}

Try<BoundPort> hold_first_free(const std::vector<uint16_t>& candidates, const char* purpose) {
    return first_free(candidates, purpose, [](int fd) {
        int on = 1;
        return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
    });
}

Try<std::string> make_secret() {
    return random_hex(32);
}

Try<NodeSetup> prepare_node(const std::string& daemon_path, const std::string& step_name, uid_t user,
                            const PortWishes& ports, bool tasks_tell) {
    NodeSetup node;
    node.daemon_binary.reset(open(daemon_path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!node.daemon_binary)
        return fail("cannot open the daemon " + daemon_path + ": " + errno_text(errno) +
                    (out_of_descriptors(errno)
                         ? ""
                         : "; install it there, or name another (daemon=PATH on the plugin's "
                           "line in plugstack.conf, or dpctl launch --daemon PATH)"));

    auto suffix = DP_TRY(random_hex(8));
    const std::string name = RanksSocketName{step_name, user, suffix}.text();
    const auto address = AbstractAddress::of(name);
    if (!address) return fail("the socket name is too long: " + name);
    node.ranks_listener = address->listen(kRanksBacklog);
    if (!node.ranks_listener)
        return fail("cannot listen on the unix socket @" + name + ": " + errno_text(errno));
    node.socket_name = "@" + name;
    if (tasks_tell) {
        node.keepers_listener =
            AbstractAddress::of(keepers_socket_name(name))->listen(kRanksBacklog, SOCK_SEQPACKET);
        if (!node.keepers_listener)
            return fail("cannot listen on the unix socket @" + keepers_socket_name(name) + ": " +
                        errno_text(errno));
    }

    node.plan_file.reset(memfd_create("slurm-dp-plan", MFD_CLOEXEC));
    int ready[2];
    int control[2];
    if (!node.plan_file || pipe2(ready, O_CLOEXEC) != 0)
        return fail("cannot make the file for the plan: " + errno_text(errno));
    node.ready_read.reset(ready[0]);
    node.ready_write.reset(ready[1]);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, control) != 0)
        return fail("cannot make the control channel: " + errno_text(errno));
    node.control_launcher.reset(control[0]);
    node.control_daemon.reset(control[1]);
    setsockopt(control[0], SOL_SOCKET, SO_SNDBUF, &kControlBuffer, sizeof kControlBuffer);
    int on = 1;
    setsockopt(control[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);

    if (!ports.candidates.empty()) DP_TRY(bind_ports(node, ports));
    return node;
}

}  // namespace dp
