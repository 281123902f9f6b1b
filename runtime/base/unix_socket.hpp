// SPDX-License-Identifier: Apache-2.0
//
// Abstract unix sockets: the address of a name, and the peer's identity.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/fd.hpp"

namespace dp {

// A name without '@'; its length is in the address, so it needs no terminator.
class AbstractAddress {
 public:
    // nullopt: the name is empty, or too long.
    static std::optional<AbstractAddress> of(std::string_view name) {
        AbstractAddress out;
        if (name.empty() || name.size() + 1 > sizeof out.address_.sun_path) return std::nullopt;
        out.address_.sun_family = AF_UNIX;
        std::memcpy(out.address_.sun_path + 1, name.data(), name.size());
        out.size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        return out;
    }
    bool bind(int socket) const { return ::bind(socket, generic(), size_) == 0; }
    // A socket that listens there and never blocks; empty, with errno, if there is none.
    Fd listen(int backlog, int type = SOCK_STREAM) const {
        Fd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!fd || !bind(fd.get()) || ::listen(fd.get(), backlog) != 0) return Fd();
        return fd;
    }
    bool connect(int socket) const { return ::connect(socket, generic(), size_) == 0; }

 private:
    sockaddr_un address_{};
    socklen_t size_ = 0;
    const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&address_); }
};

// The process at the other end, from the kernel; nullopt if unknown.
inline std::optional<ucred> peer_of(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
    return peer;
}

}  // namespace dp
