// SPDX-License-Identifier: Apache-2.0
#include "loop/metrics_server.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <vector>

namespace dp {
namespace {

using Clock = std::chrono::steady_clock;

struct FreeBase {
    void operator()(event_base* base) const { event_base_free(base); }
};

std::pair<sockaddr_un, socklen_t> abstract(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

class MetricsServerTest : public testing::Test {
 protected:
    std::unique_ptr<event_base, FreeBase> base{event_base_new()};
    StrangerLog strangers;
    std::string step = "unit" + std::to_string(getpid()) + ".0";
    void SetUp() override { signal(SIGPIPE, SIG_IGN); }  // as the daemon does

    Fd ranks = listening("slurm-dp/" + step + "/5f");
    std::vector<uint64_t> asked;
    MetricsServer server{base.get(), ranks.get(), strangers, [this](uint64_t id) { asked.push_back(id); }};

    static Fd listening(const std::string& name) {
        Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const auto [address, size] = abstract(name);
        EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
        return fd;
    }
    Fd connected() const {
        Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const auto [address, size] = abstract("slurm-dp-metrics/" + step);
        EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
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
    // Until the server closes.
    std::string receive(const Fd& fd) {
        std::string got;
        run([&] {
            char chunk[4096];
            const ssize_t n = recv(fd.get(), chunk, sizeof chunk, 0);
            if (n > 0) got.append(chunk, static_cast<size_t>(n));
            return n == 0;
        });
        return got;
    }
    static void say(const Fd& fd, const std::string& text) {
        ASSERT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    }
};

TEST_F(MetricsServerTest, AnswersWithTheStepsStatus) {
    const Fd client = connected();
    say(client, "GET /metrics HTTP/1.1\r\nHost: step\r\n");
    say(client, "\r\n");
    ASSERT_TRUE(run([&] { return asked.size() == 1; }));
    wire::ToRank message;
    message.mutable_status()->add_ranks_by_state(3);
    server.answer(asked[0], message);
    const std::string got = receive(client);
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
    const std::string got = receive(client);
    EXPECT_EQ(got.rfind("HTTP/1.1 503 ", 0), 0u) << got;
    EXPECT_NE(got.find("the broker is gone"), std::string::npos);
}

TEST_F(MetricsServerTest, WhoHasSaidAllStillGetsAnAnswer) {
    const Fd client = connected();
    say(client, "GET /metrics HTTP/1.1\r\n\r\n");
    shutdown(client.get(), SHUT_WR);
    ASSERT_TRUE(run([&] { return asked.size() == 1; }));
    run([] { return false; }, std::chrono::milliseconds(50));
    wire::ToRank message;
    message.mutable_status()->add_ranks_by_state(3);
    server.answer(asked[0], message);
    EXPECT_EQ(receive(client).rfind("HTTP/1.1 200 OK\r\n", 0), 0u);
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
    EXPECT_GE(Clock::now() - began, kHttpPatience - std::chrono::seconds(1));
    EXPECT_LE(Clock::now() - began, kHttpPatience + std::chrono::seconds(2));
    EXPECT_EQ(receive(waiting), "");
    EXPECT_EQ(asked.size(), 1u);
}

TEST_F(MetricsServerTest, WhatIsNoSuchRequestIsToldSo) {
    const std::string requests[] = {"POST / HTTP/1.1\r\n\r\n", std::string(kMaxHttpRequest, 'x')};
    for (const std::string& request : requests) {
        const Fd client = connected();
        say(client, request);
        EXPECT_EQ(receive(client).rfind("HTTP/1.1 404 ", 0), 0u);
    }
    EXPECT_TRUE(asked.empty());
}

TEST_F(MetricsServerTest, AClientThatLeavesBeforeItsAnswerIsForgotten) {
    {
        const Fd client = connected();
        say(client, "GET /metrics HTTP/1.1\r\n\r\n");
        ASSERT_TRUE(run([&] { return asked.size() == 1; }));
    }
    run([] { return false; }, std::chrono::milliseconds(50));
    server.answer(asked[0], wire::ToRank());
}

TEST_F(MetricsServerTest, OnlySoManyAreServedAtOnce) {
    std::vector<Fd> idle;
    for (size_t i = 0; i < kMaxMetricsClients; ++i) {
        idle.push_back(connected());
        run([] { return false; }, std::chrono::milliseconds(6));
    }
    EXPECT_EQ(receive(connected()), "");
    idle.clear();
    run([] { return false; }, std::chrono::milliseconds(50));
    const Fd client = connected();
    say(client, "GET /metrics HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(run([&] { return asked.size() == 1; }));
}

TEST(MetricsSocket, IsNamedAfterTheStep) {
    EXPECT_EQ(metrics_socket_name("slurm-dp/12.0/5f"), "slurm-dp-metrics/12.0");
    EXPECT_EQ(metrics_socket_name("other"), "");
}

}  // namespace
}  // namespace dp
