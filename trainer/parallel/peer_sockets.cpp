// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/peer_sockets.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/unix_socket.hpp"

namespace dp::trainer {
namespace {

// Keeps messages whole, and reports the end of a connection.
constexpr int kSocket = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
// More than a node has ranks; the kernel cuts it to its own limit.
constexpr int kBacklog = 4096;

// Abstract: it disappears with the socket, and is in the network namespace, which a job's containers share.
AbstractAddress address_of(const SocketName& name) {
    return *AbstractAddress::of(fmt::format("dp-trainer-{:016x}{:016x}", static_cast<std::uint64_t>(name[0]),
                                            static_cast<std::uint64_t>(name[1])));
}

// Other users can connect to, and listen on, any abstract name.
bool is_of_this_user(const Fd& connection) {
    const auto peer = peer_of(connection.get());
    return peer && peer->uid == geteuid();
}

// A message with a local rank and room for one descriptor.
struct Message {
    std::uint64_t rank = 0;
    iovec data{&rank, sizeof rank};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr header{nullptr, 0, &data, 1, control.data(), control.size(), 0};

    Message() = default;
    Message(const Message&) = delete;  // it points to itself
    Message& operator=(const Message&) = delete;

    bool send(const Fd& to, int file) {
        cmsghdr* note = CMSG_FIRSTHDR(&header);
        note->cmsg_level = SOL_SOCKET;
        note->cmsg_type = SCM_RIGHTS;
        note->cmsg_len = CMSG_LEN(sizeof file);
        std::memcpy(CMSG_DATA(note), &file, sizeof file);
        return sendmsg(to.get(), &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof rank);
    }

    // The descriptor that came with it; empty for anything but a message of send().
    Fd receive(const Fd& from) {
        if (recvmsg(from.get(), &header, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof rank)) return {};
        const cmsghdr* note = CMSG_FIRSTHDR(&header);
        int file = -1;
        if (note == nullptr || note->cmsg_type != SCM_RIGHTS || note->cmsg_len != CMSG_LEN(sizeof file))
            return {};
        std::memcpy(&file, CMSG_DATA(note), sizeof file);
        return Fd(file);
    }
};

}  // namespace

Result<PeerSockets> PeerSockets::open() {
    PeerSockets made;
    if (getrandom(made.name_.data(), sizeof made.name_, 0) != static_cast<ssize_t>(sizeof made.name_))
        return fail_with_errno(Fault::world, "getrandom");
    made.listener_.reset(socket(AF_UNIX, kSocket, 0));
    if (!made.listener_) return fail_with_errno(Fault::world, "socket");
    if (!address_of(made.name_).bind(made.listener_.get())) return fail_with_errno(Fault::world, "bind");
    if (listen(made.listener_.get(), kBacklog) != 0) return fail_with_errno(Fault::world, "listen");
    return made;
}

Result<void> PeerSockets::send_fd(std::span<const SocketName> names, std::size_t me, int file) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i == me) continue;
        Fd connection(socket(AF_UNIX, kSocket, 0));
        if (!connection) return fail_with_errno(Fault::world, "socket");
        if (!address_of(names[i]).connect(connection.get()))
            return fail_with_errno(Fault::world,
                                   "cannot connect to the other ranks of its node (does each have a network "
                                   "namespace of its own?)");
        if (!is_of_this_user(connection))
            return fail(Fault::world, "another user listens in place of a rank of its node");
        Message message;
        message.rank = me;
        if (!message.send(connection, file)) return fail_with_errno(Fault::world, "sendmsg");
        outgoing_.push_back(std::move(connection));
    }
    return {};
}

Result<std::vector<Fd>> PeerSockets::accept_fds(std::size_t ranks, std::size_t me) {
    std::vector<Fd> files(ranks);
    while (incoming_.size() + 1 < ranks) {
        Fd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!connection && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (!connection) return fail_with_errno(Fault::world, "accept");
        if (!is_of_this_user(connection)) continue;  // a stranger
        Message message;
        Fd file = message.receive(connection);
        if (!file || message.rank >= ranks || message.rank == me || files[message.rank]) continue;
        files[message.rank] = std::move(file);
        incoming_.push_back(std::move(connection));
    }
    listener_.reset();
    return files;
}

Result<void> PeerSockets::watch(std::function<void()> on_gone) {
    stop_.reset(eventfd(0, EFD_CLOEXEC));
    if (!stop_) return fail_with_errno(Fault::world, "eventfd");
    // Nothing is sent any more: anything readable is the end.
    std::vector<pollfd> watched{{stop_.get(), POLLIN, 0}};
    for (const Fd& connection : incoming_) watched.push_back({connection.get(), POLLIN, 0});
    watcher_ = std::thread([watched = std::move(watched), on_gone = std::move(on_gone)]() mutable {
        while (poll(watched.data(), watched.size(), -1) < 0) continue;  // a signal
        if (watched.front().revents == 0) on_gone();
    });
    return {};
}

PeerSockets::~PeerSockets() {
    if (!watcher_.joinable()) return;
    eventfd_write(stop_.get(), 1);
    watcher_.join();
}

}  // namespace dp::trainer
