// SPDX-License-Identifier: Apache-2.0
//
// TCP's congestion control between the nodes of a step.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string_view>

namespace dp {

// BBR, some sites' default, is for long lines. Between nodes its timers, which space the packets, cost more
// CPU time than the packets; and Linux takes no stream of its for thin (tcp_stream_is_thin() looks for the
// end of a slow start, which BBR has not), so that it doubles its pause with each packet that is lost. Every
// kernel has Reno and lets every user choose it. Any other stays as the site wants it.
inline void replace_bbr(int fd) {
    constexpr std::string_view kBbr = "bbr", kReno = "reno";
    std::array<char, 16> name{};  // TCP_CA_NAME_MAX of linux/tcp.h
    socklen_t size = name.size();
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return;
    if (std::string_view(name.data(), kBbr.size()) == kBbr)
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

}  // namespace dp
