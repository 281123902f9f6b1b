// SPDX-License-Identifier: Apache-2.0
#include "loop/metrics_server.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "framing.hpp"
#include "server_test.hpp"

namespace dp {
namespace {

class MetricsServerTest : public ServerTest {
 protected:
    std::string step = "unit" + std::to_string(getpid()) + ".0";
    void SetUp() override { signal(SIGPIPE, SIG_IGN); }  // as the daemon does

    Fd ranks = bound_to("slurm-dp/" + step + "/1001/5f");
    std::vector<uint64_t> asked;
    wire::NodeMetrics measured;
    MetricsServer server{base.get(),
                         ranks.get(),
                         rejected,
                         0,
                         [this] { return measured; },
                         [this](uint64_t id) { asked.push_back(id); }};

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

TEST_F(MetricsServerTest, AWatcherIsToldWhenItAsksAndAtTheEnd) {
    const Fd client = connected();
    say(client, "GET /watch HTTP/1.1\r\n\r\n");
    measured.set_tiles(1);
    std::vector<wire::NodeMetrics> got;
    std::string bytes;
    const auto frames = [&](size_t count) {
        return run([&] {
            char some[4096];
            const ssize_t size = recv(client.get(), some, sizeof some, MSG_DONTWAIT);
            if (size > 0) bytes.append(some, static_cast<size_t>(size));
            EXPECT_TRUE(
                take_frames<wire::NodeMetrics>(bytes, 65536, [&](const auto& one) { got.push_back(one); }));
            return got.size() >= count;
        });
    };
    ASSERT_TRUE(frames(1));
    EXPECT_EQ(got.back().tiles(), 1u);
    pause(kHttpTimeout + std::chrono::milliseconds(500));
    measured.set_tiles(2);
    say(client, "\n");
    ASSERT_TRUE(frames(2)) << "a watcher stays longer than others";
    EXPECT_EQ(got.back().tiles(), 2u);
    measured.set_tiles(3);
    server.finish();
    ASSERT_TRUE(frames(3));
    EXPECT_EQ(got.back().tiles(), 3u);
    EXPECT_TRUE(got.back().is_last() && !got.front().is_last());
    EXPECT_TRUE(asked.empty());
}

TEST_F(MetricsServerTest, AWatcherThatReadsNothingFillsNoMemory) {
    measured.mutable_status()->set_ending(std::string(60000, 'x'));
    const Fd client = connected();
    say(client, "GET /watch HTTP/1.1\r\n\r\n");
    for (int i = 0; i < 200; ++i) {
        say(client, "\n");
        pause(std::chrono::milliseconds(1));
    }
    size_t bytes = 0;
    std::string got(1 << 20, '\0');
    run([&] {
        const ssize_t size = recv(client.get(), got.data(), got.size(), MSG_DONTWAIT);
        bytes += size > 0 ? static_cast<size_t>(size) : 0;
        return size < 0 && errno == EAGAIN;
    });
    EXPECT_LT(bytes, 60000u * 20);
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
