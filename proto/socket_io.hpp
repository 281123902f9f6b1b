// SPDX-License-Identifier: Apache-2.0
//
// Frames over a blocking socket, with its own timeouts (SO_SNDTIMEO, SO_RCVTIMEO): for libdp and dpctl.
#pragma once

#include <sys/socket.h>

#include <cerrno>

#include "framing.hpp"

namespace dp {

inline bool send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
}

inline bool receive_exactly(int fd, char* out, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = recv(fd, out + done, size - done, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += static_cast<size_t>(n);
    }
    return true;
}

// The next frame's body; nullopt if the connection ended or the frame exceeds the limit.
inline std::optional<std::string> receive_frame(int fd, size_t limit) {
    char header[kFrameHeader];
    if (!receive_exactly(fd, header, sizeof header)) return std::nullopt;
    const auto length = frame_length(reinterpret_cast<const unsigned char*>(header), limit);
    if (!length) return std::nullopt;
    std::string body(*length, '\0');
    if (!receive_exactly(fd, body.data(), body.size())) return std::nullopt;
    return body;
}

}  // namespace dp
