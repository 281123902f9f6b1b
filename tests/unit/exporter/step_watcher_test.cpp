// SPDX-License-Identifier: Apache-2.0
#include "exporter/step_watcher.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../loop/server_test.hpp"
#include "common/socket_names.hpp"
#include "exporter/page_server.hpp"
#include "framing.hpp"
#include "loop/metrics_server.hpp"

namespace dp {
namespace {

using testing::HasSubstr;
using testing::Not;

class StepWatcherTest : public ServerTest {
 protected:
    std::string step = std::to_string(getpid()) + ".0";
    StepsOfNode steps{""};
    // Those of this test: others run beside it.
    StepWatcher::ReadSockets own_sockets = [this] {
        std::string own;
        const std::string all = read_file("/proc/net/unix");
        for (const std::string_view line : split(all, '\n'))
            if (line.ends_with("/" + step)) own += std::string(line) + "\n";
        return own;
    };
    void SetUp() override { signal(SIGPIPE, SIG_IGN); }

    std::string page(const StepWatcher& watcher) {
        return steps.page(MetricsFormat::prometheus, watcher.unreachable(), Time(0));
    }
    // Asks; how long the answers took.
    Clock::duration asked(StepWatcher& watcher) {
        bool is_answered = false;
        const auto begin = Clock::now();
        watcher.ask([&] { is_answered = true; });
        EXPECT_TRUE(run([&] { return is_answered; }));
        return Clock::now() - begin;
    }
};

TEST_F(StepWatcherTest, ReadsADaemonAndItsLastWords) {
    wire::NodeMetrics measured;
    measured.set_tiles(1);
    Fd ranks = bound_to("slurm-dp/" + step + "/1001/5f");
    std::optional<MetricsServer> daemon;
    StepWatcher watcher(base.get(), steps, own_sockets);
    asked(watcher);
    EXPECT_THAT(page(watcher), Not(HasSubstr(step)));
    daemon.emplace(
        base.get(), ranks.get(), rejected, 0, [&] { return measured; }, [](uint64_t) {});
    ASSERT_TRUE(run([&] { return steps.count() == 1; })) << "new ones are looked for";
    asked(watcher);
    EXPECT_THAT(page(watcher), HasSubstr("slurm_dp_tiles{step=\"" + step + "\""));
    measured.set_tiles(7);
    EXPECT_LT(asked(watcher), kAnswerPatience);
    EXPECT_THAT(page(watcher), HasSubstr("} 7\n")) << "as it is now";
    measured.set_tiles(8);
    daemon->finish();
    daemon.reset();
    ASSERT_TRUE(run([&] { return steps.count() == 0; }));
    EXPECT_THAT(page(watcher), HasSubstr("} 8\n"));
}

TEST_F(StepWatcherTest, ADaemonThatDoesNotAnswerDelaysOnlyALittle) {
    const Fd stopped = bound_to("slurm-dp-metrics/" + step);
    ASSERT_EQ(listen(stopped.get(), 8), 0);
    StepWatcher watcher(base.get(), steps, own_sockets);
    EXPECT_LT(asked(watcher), 3 * kAnswerPatience);
    EXPECT_THAT(page(watcher), HasSubstr("slurm_dp_exporter_unreachable_steps 1\n"));
}

TEST_F(StepWatcherTest, WhoClosesOrSaysNonsenseIsLeftAlone) {
    const Fd stranger = bound_to("slurm-dp-metrics/" + step);
    ASSERT_EQ(listen(stranger.get(), 8), 0);
    StepWatcher watcher(base.get(), steps, own_sockets);
    int connections = 0;
    const auto accept_one = [&](const std::string& bytes) {
        const Fd client(accept4(stranger.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!client) return;
        ++connections;
        if (!bytes.empty()) say(client, bytes);
    };
    run([&] { return accept_one(std::string("\0\0\0\3xyz", 7)), connections > 0; });
    EXPECT_TRUE(run([&] { return steps.count() == 0; }));
    run([&] { return accept_one(""), false; }, std::chrono::milliseconds(2500));
    EXPECT_EQ(connections, 1) << "not before kRefusalHolds";
    EXPECT_THAT(page(watcher), HasSubstr("slurm_dp_exporter_unreachable_steps 1\n"));
}

TEST_F(StepWatcherTest, NamesThatAreNoStepsAreNotWatched) {
    for (const char* name :
         {"slurm-dp-metrics/1", "slurm-dp-metrics/a.0", "slurm-dp-metrics/1.0.0", "slurm-dp-metrics/local",
          "slurm-dp-metrics/", "other/1.0", "slurm-dp-metrics/1.-1"})
        EXPECT_EQ(step_of_metrics_socket(name), std::nullopt) << name;
    EXPECT_EQ(step_of_metrics_socket("slurm-dp-metrics/12.4"), "12.4");
    EXPECT_EQ(step_of_metrics_socket("slurm-dp-metrics/local.4711"), "local.4711");
}

TEST_F(StepWatcherTest, LastWordsAreTheLast) {
    const Fd stranger = bound_to("slurm-dp-metrics/" + step);
    ASSERT_EQ(listen(stranger.get(), 8), 0);
    StepWatcher watcher(base.get(), steps, own_sockets);
    const Fd client(accept4(stranger.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(client);
    wire::NodeMetrics last;
    last.set_is_last(true);
    for (const uint32_t tiles : {5u, 6u}) {
        last.set_tiles(tiles);
        say(client, to_frame(last));
    }
    ASSERT_TRUE(run([&] { return page(watcher).find("slurm_dp_tiles{") != std::string::npos; }));
    pause();
    EXPECT_THAT(page(watcher), HasSubstr("} 5\n"));
    EXPECT_EQ(steps.count(), 0u);
}

// ---- over HTTP ----

class PageServerTest : public StepWatcherTest {
 protected:
    uint16_t port = 0;
    std::vector<PageServer::Answer> answers;
    std::vector<MetricsFormat> formats;
    PageServer server{base.get(), "", [this](MetricsFormat format, PageServer::Answer answer) {
                          formats.push_back(format);
                          answers.push_back(std::move(answer));
                      }};

    void SetUp() override {
        signal(SIGPIPE, SIG_IGN);
        for (port = 20000 + getpid() % 20000; !server.listen({"127.0.0.1", port}); ++port) {
        }
    }
    Fd connected() const {
        Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
        fcntl(fd.get(), F_SETFL, O_NONBLOCK);
        return fd;
    }
    static std::string get(const std::string& path, const std::string& accept = "*/*") {
        return "GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept: " + accept + "\r\n\r\n";
    }
};

TEST_F(PageServerTest, AnswersInTheFormatThatIsWanted) {
    const std::pair<std::string, MetricsFormat> wishes[] = {
        {"*/*", MetricsFormat::prometheus},
        {"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2",
         MetricsFormat::openmetrics}};
    for (const auto& [accept, format] : wishes) {
        const Fd client = connected();
        say(client, get("/metrics", accept));
        ASSERT_TRUE(run([&] { return !answers.empty(); }));
        EXPECT_EQ(formats.back(), format);
        answers.back()("page\n");
        answers.clear();
        const std::string got = until_closed(client).value_or("");
        EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\npage\n")) << got;
        EXPECT_EQ(got.find("openmetrics-text") != got.npos, format == MetricsFormat::openmetrics);
    }
}

TEST_F(PageServerTest, OtherPathsAreNotFound) {
    const std::pair<std::string, std::string> asked[] = {
        {"/", "HTTP/1.1 200 "}, {"/metric", "HTTP/1.1 404 "}, {"/metrics/..", "HTTP/1.1 404 "}};
    for (const auto& [path, front] : asked) {
        const Fd client = connected();
        say(client, get(path));
        EXPECT_TRUE(until_closed(client).value_or("").starts_with(front)) << path;
    }
    const Fd poster = connected();
    say(poster, "POST /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc");
    EXPECT_FALSE(until_closed(poster).value_or("").starts_with("HTTP/1.1 200"));
    EXPECT_TRUE(answers.empty());
}

TEST_F(PageServerTest, AClientThatLeavesBeforeItsAnswerHurtsNobody) {
    {
        const Fd client = connected();
        say(client, get("/metrics"));
        ASSERT_TRUE(run([&] { return answers.size() == 1; }));
    }
    pause();
    answers[0]("page\n");
    pause();
    const Fd client = connected();
    say(client, get("/metrics"));
    ASSERT_TRUE(run([&] { return answers.size() == 2; }));
    answers[1]("page\n");
    EXPECT_TRUE(until_closed(client).value_or("").ends_with("page\n"));
}

TEST_F(PageServerTest, OnlySoManyWaitAtOnce) {
    std::vector<Fd> clients;
    for (int i = 0; i < 80; ++i) {
        clients.push_back(connected());
        say(clients.back(), get("/metrics"));
    }
    pause(std::chrono::milliseconds(300));
    EXPECT_LT(answers.size(), 80u);
    EXPECT_TRUE(until_closed(clients.back()).value_or("").starts_with("HTTP/1.1 503 "));
    for (const auto& answer : answers) answer("page\n");
    EXPECT_TRUE(until_closed(clients.front()).value_or("").ends_with("page\n"));
}

TEST_F(PageServerTest, WithoutDescriptorsItWaits) {
#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
    GTEST_SKIP() << "the sanitizers need descriptors themselves";
#endif
    std::vector<Fd> clients;
    clients.push_back(connected());
    rlimit usual{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
    rlimit none = usual;
    none.rlim_cur = 0;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const auto worked = [] {
        timespec time{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    };
    const auto before = worked();
    pause(std::chrono::seconds(1));
    EXPECT_LT(worked() - before, std::chrono::milliseconds(500));
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
    say(clients.back(), get("/"));
    EXPECT_TRUE(until_closed(clients.back()).value_or("").starts_with("HTTP/1.1 200 "));
}

TEST_F(PageServerTest, AnAddressThatIsTakenIsSaid) {
    PageServer other(base.get(), "", [](MetricsFormat, const PageServer::Answer&) {});
    const auto bound = other.listen({"127.0.0.1", port});
    ASSERT_FALSE(bound);
    EXPECT_THAT(bound.error().message, HasSubstr("Address already in use; give another one with --listen"));
}

}  // namespace
}  // namespace dp
