// SPDX-License-Identifier: Apache-2.0
//
// The ranks' socket against what is no libdp: told, named in the log, and nobody else's concern.
#include "loop/rank_server.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "framing.hpp"
#include "server_test.hpp"

namespace dp {
namespace {

class RankServerTest : public ServerTest {
 protected:
    const std::string name = "slurm-dp/unit" + std::to_string(getpid()) + "/ranks";
    Fd socket_ = listening(name);
    std::vector<std::pair<ConnectionId, wire::FromRank>> heard;
    std::vector<ConnectionId> closed;
    RankServer server{
        base.get(), socket_.get(), rejected,
        [this](ConnectionId id, const wire::FromRank& message) { heard.emplace_back(id, message); },
        [this](ConnectionId id) { closed.push_back(id); }};

    static Fd listening(const std::string& name) {
        Fd fd = bound_to(name);
        EXPECT_EQ(listen(fd.get(), 16), 0);
        return fd;
    }
    Fd connected() const { return connected_to(name); }
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
        {std::string("\x00\x00\x00\x03zzz", 7), "it sent something that is not a message of slurm-dp"},
        {std::string(4, '\0'), "it sent something that is not a message of slurm-dp"},  // an empty one
    };
    for (const auto& [bytes, why] : cases) {
        rejected = RejectedPeers("here");
        testing::internal::CaptureStderr();
        const Fd fd = connected();
        say(fd, bytes);
        const std::string answer = until_closed(fd).value_or("");
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
