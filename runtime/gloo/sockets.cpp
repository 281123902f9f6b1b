// SPDX-License-Identifier: Apache-2.0
#include "gloo/sockets.hpp"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <memory>

#include "base/text.hpp"
#include "common/congestion.hpp"

namespace dp {
namespace {

unsigned long inode_of(int fd) {
    struct stat found {};
    return fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode) ? found.st_ino : 0;
}

bool is_connected_tcp(int fd) {
    int domain = 0;
    int type = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
        (domain != AF_INET && domain != AF_INET6))
        return false;
    size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return false;
    sockaddr_storage peer{};
    size = sizeof peer;
    return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

}  // namespace

ConnectedSockets connected_sockets() {
    ConnectedSockets found;
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), closedir);
    if (!directory) return found;
    while (const dirent* entry = readdir(directory.get())) {
        const auto fd = parse_number<int>(entry->d_name);
        if (!fd || !is_connected_tcp(*fd)) continue;
        if (const unsigned long inode = inode_of(*fd)) found[*fd] = inode;
    }
    return found;
}

ConnectedSockets added(const ConnectedSockets& before, const ConnectedSockets& after) {
    ConnectedSockets out;
    for (const auto& [fd, inode] : after)
        if (auto old = before.find(fd); old == before.end() || old->second != inode) out[fd] = inode;
    return out;
}

void limit_waits(const ConnectedSockets& sockets, std::chrono::milliseconds most) {
    const timeval time{most.count() / 1000, most.count() % 1000 * 1000};
    for (const auto& [fd, inode] : sockets) {
        if (inode_of(fd) != inode) continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    }
}

void replace_bbr(const ConnectedSockets& sockets) {
    for (const auto& [fd, inode] : sockets)
        if (inode_of(fd) == inode) replace_bbr(fd);
}

void shut_down(const ConnectedSockets& sockets) {
    for (const auto& [fd, inode] : sockets)
        if (inode_of(fd) == inode) shutdown(fd, SHUT_RDWR);
}

}  // namespace dp
