// SPDX-License-Identifier: Apache-2.0
//
// The ranks' socket against what is no libdp: told, named in the log, and nobody else's concern.
#include "loop/rank_server.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "framing.hpp"

namespace dp {
namespace {

using Clock = std::chrono::steady_clock;

struct FreeBase {
    void operator()(event_base* base) const { event_base_free(base); }
};

class RankServerTest : public testing::Test {
 protected:
    std::unique_ptr<event_base, FreeBase> base{event_base_new()};
    StrangerLog strangers;
    const std::string name = "slurm-dp/unit" + std::to_string(getpid()) + "/ranks";
    Fd socket_ = listening();
    std::vector<std::pair<ConnectionId, wire::FromRank>> heard;
    std::vector<ConnectionId> closed;
    RankServer server{
        base.get(), socket_.get(), strangers,
        [this](ConnectionId id, const wire::FromRank& message) { heard.emplace_back(id, message); },
        [this](ConnectionId id) { closed.push_back(id); }};

    std::pair<sockaddr_un, socklen_t> address() const {
        sockaddr_un out{};
        out.sun_family = AF_UNIX;
        std::memcpy(out.sun_path + 1, name.data(), name.size());
        return {out, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
    }
    Fd listening() const {
        Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const auto [where, size] = address();
        EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&where), size), 0);
        EXPECT_EQ(listen(fd.get(), 16), 0);
        return fd;
    }
    Fd connected() const {
        Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const auto [where, size] = address();
        EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), size), 0);
        return fd;
    }
    template <typename Done>
    bool run(Done done, Clock::duration time = std::chrono::seconds(10)) {
        Timer tick(base.get(), [] {});
        for (const auto end = Clock::now() + time; !done() && Clock::now() < end;) {
            tick.after(Time(5));
            event_base_loop(base.get(), EVLOOP_ONCE);
            server.sweep();
        }
        return done();
    }
    // All that comes until the server closes.
    std::string receive(const Fd& fd) {
        std::string got;
        EXPECT_TRUE(run([&] {
            char chunk[4096];
            const ssize_t n = recv(fd.get(), chunk, sizeof chunk, 0);
            if (n > 0) got.append(chunk, static_cast<size_t>(n));
            return n == 0 || (n < 0 && errno == ECONNRESET);
        }));
        return got;
    }
    static void say(const Fd& fd, const std::string& bytes) {
        ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
};

TEST_F(RankServerTest, WhatIsNoMessageIsToldNamedAndClosedAlone) {
    const Fd good = connected();
    wire::FromRank hello;
    hello.mutable_hello()->set_rank(7);
    say(good, to_frame(hello));
    ASSERT_TRUE(run([&] { return heard.size() == 1; }));
    const std::pair<std::string, std::string> cases[] = {
        {std::string("\xff\xff\xff\xff", 4),
         "it sent a frame over the limit of " + std::to_string(kMaxFrame) + " bytes"},
        {std::string("\x00\x00\x00\x03zzz", 7), "it sent no message of ours"},
        {std::string(4, '\0'), "it sent no message of ours"},  // an empty one
    };
    for (const auto& [bytes, why] : cases) {
        strangers = StrangerLog("here");
        testing::internal::CaptureStderr();
        const Fd fd = connected();
        say(fd, bytes);
        const std::string answer = receive(fd);
        EXPECT_EQ(testing::internal::GetCapturedStderr(), "slurm-dp: closed a local connection of pid " +
                                                              std::to_string(getpid()) + ": " + why + "\n");
        ASSERT_GT(answer.size(), kFrameHeader) << why;
        const auto told = parse_message<wire::ToRank>(answer.substr(kFrameHeader));
        ASSERT_TRUE(told) << why;
        EXPECT_EQ(told->reply().status(), wire::INVALID);
        EXPECT_NE(told->reply().error().find(why), std::string::npos) << told->reply().error();
    }
    EXPECT_EQ(closed.size(), std::size(cases));
    say(good, to_frame(hello));
    EXPECT_TRUE(run([&] { return heard.size() == 2; })) << "the good one goes on";
}

TEST_F(RankServerTest, HalfAFrameIsWaitedForAndItsEndIsTheConnectionsEnd) {
    Fd fd = connected();
    say(fd, std::string("\0\0", 2));
    EXPECT_FALSE(run([&] { return !closed.empty(); }, std::chrono::milliseconds(50)));
    fd.reset();
    EXPECT_TRUE(run([&] { return closed.size() == 1; }));
    EXPECT_TRUE(heard.empty());
}

}  // namespace
}  // namespace dp
