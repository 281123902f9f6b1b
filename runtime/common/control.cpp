// SPDX-License-Identifier: Apache-2.0
#include "common/control.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>

#include "base/awake.hpp"
#include "base/text.hpp"

namespace dp {
namespace {

// The daemon's messages.
constexpr std::string_view kHere = "here", kRanksLeft = "ranks left";

// Neither waits for the other side nor dies because of it.
void send_packet(int fd, std::string_view packet) {
    send(fd, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool wait_pidfd(int pidfd, std::chrono::milliseconds timeout) {
    pollfd entry{pidfd, POLLIN, 0};
    return poll_for(entry, timeout) > 0;
}

}  // namespace

std::string write_control(const ControlEvent& event) {
    const std::string local = std::to_string(event.local_rank);
    const std::string value = " " + std::to_string(event.value);
    switch (event.kind) {
        case ControlEvent::Kind::task:
            return "task " + local + value;
        case ControlEvent::Kind::tiles:
            return "tiles " + local + " " + event.text;
        case ControlEvent::Kind::exit:
            return "exit " + local + value;
        case ControlEvent::Kind::keep:
            return "keep " + local;
        case ControlEvent::Kind::told:
            return "told " + local + value;
        case ControlEvent::Kind::environment:
            return "environment " + local + value + event.text;
        case ControlEvent::Kind::end:
            break;
    }
    return "end";
}

Try<ControlEvent> read_control(std::string_view packet) {
    using Kind = ControlEvent::Kind;
    if (packet == "end") return ControlEvent{Kind::end};
    if (const size_t null = packet.find('\0'); null != packet.npos) {
        const auto words = split(packet.substr(0, null), ' ');
        const auto local = words.size() == 3 ? parse_number<uint32_t>(words[1]) : std::nullopt;
        const auto generation = local ? parse_number<int>(words[2]) : std::nullopt;
        if (generation && words[0] == "environment")
            return ControlEvent{Kind::environment, *local, *generation, std::string(packet.substr(null))};
    }
    const auto words = split(packet, ' ');
    if (words.size() == 2 && words[0] == "keep")
        if (const auto local = parse_number<uint32_t>(words[1])) return ControlEvent{Kind::keep, *local};
    if (const auto local = words.size() == 3 ? parse_number<uint32_t>(words[1]) : std::nullopt) {
        const auto value = parse_number<int>(words[2]);
        if (words[0] == "task" && value) return ControlEvent{Kind::task, *local, *value};
        if (words[0] == "exit" && value) return ControlEvent{Kind::exit, *local, *value};
        if (words[0] == "told" && value) return ControlEvent{Kind::told, *local, *value};
        if (words[0] == "tiles" && !words[2].empty())
            return ControlEvent{Kind::tiles, *local, 0, std::string(words[2])};
    }
    return fail("an unknown control packet: \"" + printable(packet, 60) + "\"");
}

void send_control(int fd, const ControlEvent& event) {
    const std::string packet = write_control(event);
    if (packet.size() <= kMaxControl) send_packet(fd, packet);
}

void announce_daemon(int fd) {
    send_packet(fd, kHere);
}

void announce_ranks_left(int fd) {
    send_packet(fd, kRanksLeft);
}

bool ranks_are_left(int fd) {
    for (;;) {
        char word[16];
        const ssize_t size = recv(fd, word, sizeof word, MSG_DONTWAIT);
        if (size < 0 && errno == ECONNRESET) continue;  // see daemon_pid
        if (size <= 0) return false;
        if (std::string_view(word, static_cast<size_t>(size)) == kRanksLeft) return true;
    }
}

std::optional<pid_t> daemon_pid(int fd) {
    char text[16];
    iovec buffer{text, sizeof text};
    alignas(cmsghdr) char ancillary[CMSG_SPACE(sizeof(ucred))];
    msghdr message{nullptr, 0, &buffer, 1, ancillary, sizeof ancillary, 0};
    ssize_t size = 0;
    do {
        size = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        // The daemon left with packets unread: the kernel reports this once, before what the daemon had said.
    } while (size < 0 && errno == ECONNRESET);
    if (size <= 0) return std::nullopt;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS) continue;
        ucred credentials{};
        std::memcpy(&credentials, CMSG_DATA(part), sizeof credentials);
        if (credentials.pid > 0) return credentials.pid;
    }
    return std::nullopt;
}

Fd open_daemon(int fd, pid_t pid) {
    Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    pollfd entry{fd, 0, 0};
    if (!pidfd || poll(&entry, 1, 0) < 0 || (entry.revents & (POLLHUP | POLLERR))) return Fd();
    return pidfd;
}

Ended wait_until_gone(const Fd& pidfd, std::chrono::milliseconds timeout) {
    if (!pidfd || wait_pidfd(pidfd.get(), timeout)) return Ended::gone;
    syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
    return wait_pidfd(pidfd.get(), std::chrono::seconds(1)) ? Ended::killed : Ended::stuck;
}

}  // namespace dp
