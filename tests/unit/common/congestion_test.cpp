// SPDX-License-Identifier: Apache-2.0
#include "common/congestion.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/fd.hpp"

namespace dp {
namespace {

Fd tcp_socket() {
    return Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

bool set_control(const Fd& socket, std::string_view name) {
    return setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

std::string control_of(const Fd& socket) {
    std::array<char, 16> name{};
    socklen_t size = name.size();
    getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size);
    return name.data();
}

TEST(Congestion, TakesRenoForBbr) {
    const Fd socket = tcp_socket();
    if (!set_control(socket, "bbr")) GTEST_SKIP() << "this kernel has no BBR";
    replace_bbr(socket.get());
    EXPECT_EQ(control_of(socket), "reno");
}

TEST(Congestion, LeavesWhatElseTheSiteHasChosen) {
    for (const std::string_view name : {"reno", "cubic", "dctcp"}) {
        const Fd socket = tcp_socket();
        if (!set_control(socket, name)) continue;  // reno is always there
        replace_bbr(socket.get());
        EXPECT_EQ(control_of(socket), name);
    }
}

TEST(Congestion, KnowsWhatIsNoTcp) {
    const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    replace_bbr(socket.get());
    EXPECT_TRUE(socket);
}

}  // namespace
}  // namespace dp
