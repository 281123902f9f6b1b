// SPDX-License-Identifier: Apache-2.0
#include "fd_handover.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>

namespace dp::plugin {
namespace {

std::array<Fd*, 3> lent_of(NodeSetup& node) {
    return {&node.control_launcher, &node.plan_file, &node.ready_read};
}

std::array<Fd*, 8> daemons_of(NodeSetup& node) {
    return {&node.daemon_binary,  &node.ranks_listener, &node.keepers_listener, &node.ready_write,
            &node.control_daemon, &node.broker.socket,  &node.master.socket,    &node.coordinator.socket};
}

constexpr size_t kMost = 8;

tl::unexpected<Failure> failure(const char* what) {
    return fail(std::string(what) + ": " + std::strerror(errno) +
                " (SlurmdParameters=contain_spank is set; without it nothing needs to be kept so)");
}

// A letter per descriptor (+ if there is one, - if not), and the descriptors themselves.
struct Packet {
    std::array<char, kMost> letters{};
    iovec text{letters.data(), letters.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMost * sizeof(int))> ancillary{};
    msghdr message{nullptr, 0, &text, 1, ancillary.data(), ancillary.size(), 0};
};

Try<void> send_all(int socket, std::span<Fd* const> all) {
    Packet packet;
    cmsghdr* const part = CMSG_FIRSTHDR(&packet.message);
    size_t bytes = 0;
    for (size_t i = 0; i < all.size(); ++i) {
        packet.letters[i] = *all[i] ? '+' : '-';
        if (!*all[i]) continue;
        const int number = all[i]->get();
        std::memcpy(CMSG_DATA(part) + bytes, &number, sizeof number);
        bytes += sizeof number;
    }
    packet.message.msg_controllen = CMSG_SPACE(bytes);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(bytes);
    if (sendmsg(socket, &packet.message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return failure("cannot keep the node's descriptors");
    for (Fd* fd : all) fd->reset();
    return {};
}

// MSG_PEEK makes new descriptors for what stays in the packet.
Try<void> receive_all(int socket, std::span<Fd* const> all, int flags) {
    Packet packet;
    if (recvmsg(socket, &packet.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags) < 0)
        return failure("cannot fetch the node's descriptors");
    const cmsghdr* part = CMSG_FIRSTHDR(&packet.message);
    const size_t count = part ? (part->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    size_t next = 0;
    for (size_t i = 0; i < all.size() && next < count; ++i) {
        if (packet.letters[i] != '+') continue;
        int number = -1;
        std::memcpy(&number, CMSG_DATA(part) + next++ * sizeof(int), sizeof number);
        all[i]->reset(number);
    }
    // The kernel drops descriptors for which the process has no room.
    if (packet.message.msg_flags & MSG_CTRUNC) {
        errno = EMFILE;
        return failure("cannot fetch the node's descriptors");
    }
    return {};
}

}  // namespace

Try<void> FdHandover::build() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return fail(std::string("cannot make a socket pair: ") + std::strerror(errno));
    builder_ = getpid();
    lent_.reset(ends[0]);
    daemons_.reset(ends[1]);
    return {};
}

void FdHandover::abandon() {
    // In a separate process they would only be closed there, and slurmstepd would forget their numbers.
    if (getpid() == builder_) *this = FdHandover();
}

Try<void> FdHandover::put(NodeSetup& node) {
    abandon();
    if (!lent_) return {};
    // What is sent into one end waits at the other.
    DP_TRY(send_all(daemons_.get(), lent_of(node)));
    return send_all(lent_.get(), daemons_of(node));
}

Try<void> FdHandover::lend(NodeSetup& node) const {
    if (!lent_) return {};
    return receive_all(lent_.get(), lent_of(node), MSG_PEEK);
}

void FdHandover::take_back(NodeSetup& node) const {
    if (!lent_) return;
    for (Fd* fd : lent_of(node)) fd->reset();
}

Try<void> FdHandover::hand_over(NodeSetup& node) const {
    if (!lent_) return {};
    return receive_all(daemons_.get(), daemons_of(node), 0);
}

}  // namespace dp::plugin
