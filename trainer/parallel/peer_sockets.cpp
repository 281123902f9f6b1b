// SPDX-License-Identifier: Apache-2.0
//
// See peer_sockets.hpp.
#include "trainer/parallel/peer_sockets.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace dp::trainer {
namespace {

// Keeps messages whole, and reports the end of a connection.
constexpr int kSocket = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
// More than a node has ranks; the kernel cuts it to its own limit.
constexpr int kBacklog = 4096;

struct Address {
    sockaddr_un name{};
    socklen_t size = 0;
};

// Abstract: it disappears with the socket, and is in the network namespace, which a job's containers share.
Address address_of(const DoorNumber& door) {
    const std::string name = fmt::format("dp-trainer-{:016x}{:016x}", static_cast<std::uint64_t>(door[0]),
                                         static_cast<std::uint64_t>(door[1]));
    Address address;
    address.name.sun_family = AF_UNIX;
    std::memcpy(address.name.sun_path + 1, name.data(), name.size());
    address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

// Other users can connect to, and listen on, any abstract name.
bool is_of_this_user(const Fd& connection) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// A message with a number and room for one descriptor.
class Message {
 public:
    Message() {
        header_.msg_iov = &part_;
        header_.msg_iovlen = 1;
        header_.msg_control = control_.data();
        header_.msg_controllen = control_.size();
    }
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;

    bool send(const Fd& to, std::uint64_t number, int file) {
        number_ = number;
        cmsghdr* note = CMSG_FIRSTHDR(&header_);
        note->cmsg_level = SOL_SOCKET;
        note->cmsg_type = SCM_RIGHTS;
        note->cmsg_len = CMSG_LEN(sizeof file);
        std::memcpy(CMSG_DATA(note), &file, sizeof file);
        return sendmsg(to.get(), &header_, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof number_);
    }

    // The descriptor that came with it; empty for anything but a message of send().
    Fd receive(const Fd& from) {
        if (recvmsg(from.get(), &header_, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof number_))
            return {};
        const cmsghdr* note = CMSG_FIRSTHDR(&header_);
        int file = -1;
        if (note == nullptr || note->cmsg_type != SCM_RIGHTS || note->cmsg_len != CMSG_LEN(sizeof file))
            return {};
        std::memcpy(&file, CMSG_DATA(note), sizeof file);
        return Fd(file);
    }
    std::uint64_t number() const { return number_; }

 private:
    std::uint64_t number_ = 0;
    iovec part_{&number_, sizeof number_};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control_{};
    msghdr header_{};
};

}  // namespace

Result<PeerSockets> PeerSockets::open() {
    PeerSockets made;
    if (getrandom(made.door_.data(), sizeof made.door_, 0) != static_cast<ssize_t>(sizeof made.door_))
        return fail_with_errno(Fault::world, "getrandom");
    made.listener_.reset(socket(AF_UNIX, kSocket, 0));
    if (!made.listener_) return fail_with_errno(Fault::world, "socket");
    const Address address = address_of(made.door_);
    if (bind(made.listener_.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0)
        return fail_with_errno(Fault::world, "bind");
    if (listen(made.listener_.get(), kBacklog) != 0) return fail_with_errno(Fault::world, "listen");
    return made;
}

Result<void> PeerSockets::call_on(std::span<const DoorNumber> doors, std::size_t me, int file) {
    for (std::size_t i = 0; i < doors.size(); ++i) {
        if (i == me) continue;
        Fd connection(socket(AF_UNIX, kSocket, 0));
        if (!connection) return fail_with_errno(Fault::world, "socket");
        const Address address = address_of(doors[i]);
        if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0)
            return fail_with_errno(Fault::world,
                                   "it does not reach them (is each in a network namespace of its own?)");
        if (!is_of_this_user(connection)) return fail(Fault::world, "one of them is of another user");
        if (!Message().send(connection, me, file)) return fail_with_errno(Fault::world, "sendmsg");
        called_.push_back(std::move(connection));
    }
    return {};
}

Result<std::vector<Fd>> PeerSockets::let_in(std::size_t ranks, std::size_t me) {
    std::vector<Fd> files(ranks);
    while (let_in_.size() + 1 < ranks) {
        Fd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!connection && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (!connection) return fail_with_errno(Fault::world, "accept");
        if (!is_of_this_user(connection)) continue;  // a stranger
        Message message;
        Fd file = message.receive(connection);
        const std::uint64_t who = message.number();
        if (!file || who >= ranks || who == me || files[who]) continue;
        files[who] = std::move(file);
        let_in_.push_back(std::move(connection));
    }
    listener_.reset();
    return files;
}

Result<void> PeerSockets::watch(std::function<void()> on_gone) {
    stop_.reset(eventfd(0, EFD_CLOEXEC));
    if (!stop_) return fail_with_errno(Fault::world, "eventfd");
    // Nothing is sent any more: anything readable is the end.
    std::vector<pollfd> watched{{stop_.get(), POLLIN, 0}};
    for (const Fd& connection : let_in_) watched.push_back({connection.get(), POLLIN, 0});
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
