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

// BBR, some sites' default, is made for long-distance links. Between nodes, its pacing timers cost more CPU
// time than the packets. Also, Linux never treats its streams as thin (tcp_stream_is_thin() looks for the end
// of slow start, which BBR does not have), so the timeout doubles with each lost packet. Every kernel has
// Reno and lets every user choose it. Other algorithms stay as the site wants.
inline void replace_bbr(int fd) {
    constexpr std::string_view kBbr = "bbr", kReno = "reno";
    std::array<char, 16> name{};  // TCP_CA_NAME_MAX of linux/tcp.h
    socklen_t size = name.size();
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return;
    if (std::string_view(name.data(), kBbr.size()) == kBbr)
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

}  // namespace dp
