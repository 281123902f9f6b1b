// SPDX-License-Identifier: Apache-2.0
#include "loop/metrics_server.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "server_test.hpp"

namespace dp {
namespace {

class MetricsServerTest : public ServerTest {
 protected:
    std::string step = "unit" + std::to_string(getpid()) + ".0";
    void SetUp() override { signal(SIGPIPE, SIG_IGN); }  // as the daemon does

    Fd ranks = bound_to("slurm-dp/" + step + "/1001/5f");
    std::vector<uint64_t> asked;
    MetricsServer server{base.get(), ranks.get(), rejected, [this](uint64_t id) { asked.push_back(id); }};

    Fd connected() const { return connected_to("slurm-dp-metrics/" + step); }
};

TEST_F(MetricsServerTest, AnswersWithTheStepsStatus) {
    const Fd client = connected();
    say(client, "GET /metrics HTTP/1.1\r\nHost: step\r\n");
    say(client, "\r\n");
    ASSERT_TRUE(run([&] { return asked.size() == 1; }));
    wire::ToRank message;
    message.mutable_status()->add_ranks_by_state(3);
    server.answer(asked[0], message);
    const std::string got = until_closed(client).value_or("");
    EXPECT_EQ(got.rfind("HTTP/1.1 200 OK\r\n", 0), 0u) << got;
    EXPECT_NE(got.find("slurm_dp_ranks{step=\"" + step + "\",state=\"not_started\"} 3\n"), std::string::npos)
        << got;
}

TEST_F(MetricsServerTest, SaysWhyThereAreNone) {
    const Fd client = connected();
    say(client, "GET /metrics HTTP/1.1\r\n\r\n");
    ASSERT_TRUE(run([&] { return asked.size() == 1; }));
    wire::ToRank message;
    message.mutable_reply()->set_error("the broker is gone");
    server.answer(asked[0], message);
    const std::string got = until_closed(client).value_or("");
    EXPECT_EQ(got.rfind("HTTP/1.1 503 ", 0), 0u) << got;
    EXPECT_NE(got.find("the broker is gone"), std::string::npos);
}

TEST_F(MetricsServerTest, WhoHasSaidAllStillGetsAnAnswer) {
    const Fd client = connected();
    say(client, "GET /metrics HTTP/1.1\r\n\r\n");
    shutdown(client.get(), SHUT_WR);
    ASSERT_TRUE(run([&] { return asked.size() == 1; }));
    pause();
    wire::ToRank message;
    message.mutable_status()->add_ranks_by_state(3);
    server.answer(asked[0], message);
    EXPECT_EQ(until_closed(client).value_or("").rfind("HTTP/1.1 200 OK\r\n", 0), 0u);
}

// One byte at a time does not keep a place, and neither does an answer that does not come.
TEST_F(MetricsServerTest, NobodyStaysLongerThanItsTime) {
    const Fd slow = connected();
    const Fd waiting = connected();
    say(waiting, "GET /metrics HTTP/1.1\r\n\r\n");
    const auto began = Clock::now();
    auto next = began;
    ssize_t got = -1;
    EXPECT_TRUE(run([&] {
        if (got == 0 || Clock::now() < next) return got == 0;
        next += std::chrono::milliseconds(200);
        send(slow.get(), "G", 1, MSG_NOSIGNAL);
        char byte;
        got = recv(slow.get(), &byte, 1, 0);
        return got == 0;
    }));
    EXPECT_GE(Clock::now() - began, kHttpTimeout - std::chrono::seconds(1));
    EXPECT_LE(Clock::now() - began, kHttpTimeout + std::chrono::seconds(2));
    EXPECT_EQ(until_closed(waiting), "");
    EXPECT_EQ(asked.size(), 1u);
}

TEST_F(MetricsServerTest, WhatIsNoSuchRequestIsToldSo) {
    const std::string requests[] = {"POST / HTTP/1.1\r\n\r\n", std::string(kMaxHttpRequest, 'x')};
    for (const std::string& request : requests) {
        const Fd client = connected();
        say(client, request);
        EXPECT_EQ(until_closed(client).value_or("").rfind("HTTP/1.1 404 ", 0), 0u);
    }
    EXPECT_TRUE(asked.empty());
}

TEST_F(MetricsServerTest, AClientThatLeavesBeforeItsAnswerIsForgotten) {
    {
        const Fd client = connected();
        say(client, "GET /metrics HTTP/1.1\r\n\r\n");
        ASSERT_TRUE(run([&] { return asked.size() == 1; }));
    }
    pause();
    server.answer(asked[0], wire::ToRank());
}

TEST_F(MetricsServerTest, OnlySoManyAreServedAtOnce) {
    std::vector<Fd> idle;
    for (size_t i = 0; i < kMaxMetricsClients; ++i) {
        idle.push_back(connected());
        pause(std::chrono::milliseconds(6));
    }
    EXPECT_EQ(until_closed(connected()), "");
    idle.clear();
    pause();
    const Fd client = connected();
    say(client, "GET /metrics HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(run([&] { return asked.size() == 1; }));
}

}  // namespace
}  // namespace dp
