// SPDX-License-Identifier: Apache-2.0
//
// Programs that make progress and programs that do not, watched with a timeout of a second.
#include "stacks/rank_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "base/fd.hpp"
#include "program.hpp"

namespace dp::stacks {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::StartsWith;

// A sanitizer's looks are slow, and on a busy machine too few within a second.
#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
constexpr milliseconds kTimeout = seconds(2);
#else
constexpr milliseconds kTimeout = seconds(1);
#endif

// Watches it for so long, or until there are news.
std::optional<RankWatch::News> watch(RankWatch& rank, milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
        auto news = rank.look(std::chrono::steady_clock::now());
        if (!news) {
            ADD_FAILURE() << news.error().message;
            return std::nullopt;
        }
        if (*news) return *news;
        std::this_thread::sleep_for(look_interval(kTimeout));
    }
    return std::nullopt;
}

// Where a Python program hangs; "" if it does not, for three timeouts.
std::string where_it_hangs(const std::string& text) {
    const Script script(text.c_str());
    const Program python({"/usr/bin/python3", script.path.c_str()});
    python.wait();
    RankWatch rank(python.pid(), kTimeout);
    const auto news = watch(rank, 3 * kTimeout + kTimeout / 2);
    return news && news->still ? news->still->where : "";
}

TEST(RankWatch, WhoSleepsOrWaitsHangs) {
    const struct {
        const char* what;
        const char* text;
    } cases[] = {
        {"a sleep",
         "import time\ndef load_batch():\n    time.sleep(1000)\nprint(1, flush=True)\nload_batch()\n"},
        {"a lock",
         "import threading\nlock = threading.Lock()\ndef load_batch():\n    "
         "lock.acquire()\nlock.acquire()\nprint(1, flush=True)\nload_batch()\n"},
        {"a pipe",
         "import os\nends = os.pipe()\ndef load_batch():\n    os.read(ends[0], 1)\nprint(1, "
         "flush=True)\nload_batch()\n"},
        {"a queue that is polled",
         "import queue\nq = queue.Queue()\ndef load_batch():\n    while True:\n        try: return "
         "q.get(timeout=0.8)\n        except queue.Empty: pass\nprint(1, flush=True)\nload_batch()\n"},
        {"a child",
         "import subprocess\ndef load_batch():\n    subprocess.run(['sleep', '1000'])\nprint(1, "
         "flush=True)\nload_batch()\n"},
    };
    for (const auto& one : cases)
        EXPECT_THAT(where_it_hangs(one.text), StartsWith("load_batch (")) << one.what;
}

TEST(RankWatch, WhoWorksDoesNot) {
    const struct {
        const char* what;
        const char* text;
    } cases[] = {
        {"a data loader",
         "print(1, flush=True)\nwhile True:\n    x = [i * i for i in range(10000)]\n    y = sorted(x)\n"},
        {"at one line", "import time\nprint(1, flush=True)\nwhile True: pass\n"},
        {"sleeps", "import time\nprint(1, flush=True)\nfor step in range(1000): time.sleep(0.7)\n"},
        {"a slow disk",
         "import os, time\nprint(1, flush=True)\nfile = open('/dev/null', 'wb', buffering=0)\ndata = b'x' * "
         "100000\nwhile True:\n    file.write(data); time.sleep(0.3)\n"},
        {"a child",
         "import subprocess, sys\nprint(1, flush=True)\nsubprocess.run([sys.executable, '-c', 'while True: "
         "pass'], timeout=20)\n"},
        {"another thread that receives",
         "import socket, threading, time\nserver = socket.create_server(('127.0.0.1', 0))\ndef send():\n    "
         "peer, _ = server.accept()\n    while True: peer.sendall(bytes(10000)); time.sleep(0.02)\ndef "
         "receive():\n    peer = socket.create_connection(server.getsockname())\n    while peer.recv(1 << "
         "20): pass\nfor work in (send, receive): threading.Thread(target=work, "
         "daemon=True).start()\nprint(1, "
         "flush=True)\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n"},
        {"one call that receives",
         "import socket, threading, time\nserver = socket.create_server(('127.0.0.1', 0))\ndef send():\n    "
         "peer, _ = server.accept()\n    while True: peer.sendall(bytes(10000)); time.sleep(0.02)\n"
         "threading.Thread(target=send, daemon=True).start()\npeer = "
         "socket.create_connection(server.getsockname())\nprint(1, "
         "flush=True)\npeer.recv(10 ** 9, socket.MSG_WAITALL)\n"},
        {"a library",
         "import hashlib\nprint(1, flush=True)\nhashlib.pbkdf2_hmac('sha256', b'x', b'y', 10 ** 9)\n"},
    };
    for (const auto& one : cases) EXPECT_EQ(where_it_hangs(one.text), "") << one.what;
}

TEST(RankWatch, ALittleTrafficIsNoWork) {
    EXPECT_THAT(
        where_it_hangs(
            "import socket, threading, time\nserver = socket.create_server(('127.0.0.1', 0))\ndef "
            "send():\n    peer, _ = server.accept()\n    while True: peer.sendall(bytes(200)); "
            "time.sleep(0.02)\ndef receive():\n    peer = "
            "socket.create_connection(server.getsockname())\n    while peer.recv(1 << 20): pass\nfor work "
            "in (send, receive): threading.Thread(target=work, daemon=True).start()\nprint(1, "
            "flush=True)\ndef load_batch():\n    lock = threading.Lock()\n    lock.acquire()\n    "
            "lock.acquire()\nload_batch()\n"),
        StartsWith("load_batch ("));
}

TEST(TcpTraffic, IsCountedByConnection) {
    using namespace std::chrono_literals;
    const SteadyTime begin{}, end = begin + 2s;
    constexpr uint64_t kOne = 128 << 10;  // in 2 s
    EXPECT_FALSE(is_transfer({begin, {}}, {end, {}}));
    EXPECT_TRUE(is_transfer({begin, {{1, 100}, {2, 50}}}, {end, {{1, 100 + kOne}}}));
    EXPECT_FALSE(is_transfer({begin, {{1, 100}, {2, kOne}}}, {end, {{1, 99 + kOne}, {3, kOne - 1}}}))
        << "2 was closed";
    EXPECT_TRUE(is_transfer({begin, {}}, {end, {{3, kOne}}})) << "3 is new";
    EXPECT_FALSE(is_transfer({begin, {{1, kOne}}}, {end, {{1, 30}}})) << "another socket with that inode";
    EXPECT_FALSE(is_transfer({begin, {}}, {begin, {{1, kOne}}}));
    TcpTraffic store{end, {}};
    for (uint32_t i = 0; i < 1000; ++i) store.bytes[i] = 8000;
    EXPECT_FALSE(is_transfer({begin, {}}, store)) << "a little of each";
    for (auto& [inode, bytes] : store.bytes) bytes = 9000;
    EXPECT_TRUE(is_transfer({begin, {}}, store));
    ASSERT_TRUE(tcp_traffic_of({}));
    EXPECT_TRUE(tcp_traffic_of({1 << 30})->bytes.empty()) << "nobody";
}

// A connection with this process at both ends.
struct Connection {
    Fd near, far;
    Connection(const char* address, bool is_six) {
        sockaddr_in6 six{};
        six.sin6_family = AF_INET6;
        sockaddr_in four{};
        four.sin_family = AF_INET;
        inet_pton(is_six ? AF_INET6 : AF_INET, address,
                  is_six ? static_cast<void*>(&six.sin6_addr) : static_cast<void*>(&four.sin_addr));
        auto* const name = is_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
        socklen_t size = is_six ? sizeof six : sizeof four;
        const Fd listener(socket(name->sa_family, SOCK_STREAM, 0));
        near.reset(socket(name->sa_family, SOCK_STREAM, 0));
        if (bind(listener.get(), name, size) == 0 && listen(listener.get(), 1) == 0 &&
            getsockname(listener.get(), name, &size) == 0 && connect(near.get(), name, size) == 0)
            far.reset(accept(listener.get(), nullptr, nullptr));
    }
};

TEST(TcpTraffic, TheKernelCountsIt) {
    const Connection four("127.0.0.1", false), six("::1", true);
    ASSERT_TRUE(four.far && six.far);
    shutdown(four.far.get(), SHUT_WR);  // half closed, as where all was asked for and is now received
    const std::string some(5000, 'x');
    for (const auto* one : {&four, &six}) {
        ASSERT_EQ(send(one->near.get(), some.data(), some.size(), 0), 5000);
        std::string got(some.size(), '\0');
        ASSERT_EQ(recv(one->far.get(), got.data(), got.size(), MSG_WAITALL), 5000);
    }
    const auto traffic = tcp_traffic_of({getpid()});
    ASSERT_TRUE(traffic);
    for (const auto* one : {&four, &six}) {
        struct stat near {
        }, far{};
        ASSERT_TRUE(fstat(one->near.get(), &near) == 0 && fstat(one->far.get(), &far) == 0);
        ASSERT_TRUE(traffic->bytes.contains(static_cast<uint32_t>(near.st_ino)));
        ASSERT_TRUE(traffic->bytes.contains(static_cast<uint32_t>(far.st_ino)));
        EXPECT_NEAR(static_cast<double>(traffic->bytes.at(static_cast<uint32_t>(far.st_ino))), 5000, 1);
    }
}

// A stop leaves less of the time in the program's memory: also one by who looks at it.
TEST(RankWatch, WhoSleepsAndIsStoppedNowAndThenHangs) {
    const Program sleeper({"/bin/sh", "-c", "echo 1; exec sleep 1000"});
    sleeper.wait();
    std::atomic<bool> is_enough = false;
    std::thread stops([&] {
        for (; !is_enough; std::this_thread::sleep_for(milliseconds(100)))
            for (const int signal : {SIGSTOP, SIGCONT}) kill(sleeper.pid(), signal);
    });
    RankWatch rank(sleeper.pid(), kTimeout);
    const auto news = watch(rank, 3 * kTimeout + kTimeout / 2);
    is_enough = true;
    stops.join();
    EXPECT_TRUE(news && news->still);
}

TEST(RankWatch, AnEndlessLoopHasSeveralTimeouts) {
    const Script script("def spin():\n    while True:\n        pass\nprint(1, flush=True)\nspin()\n");
    const Program python({"/usr/bin/python3", script.path.c_str()});
    python.wait();
    RankWatch rank(python.pid(), kTimeout);
    const auto news = watch(rank, 2 * kPatienceWithBusy * kTimeout);
    ASSERT_TRUE(news && news->still);
    EXPECT_THAT(news->still->where, StartsWith("spin ("));
    EXPECT_GE(news->stood, kPatienceWithBusy * kTimeout);
}

TEST(RankWatch, WhoGoesOnMovesAgain) {
    const Script script(
        "import sys\ndef ask():\n    sys.stdin.read(1)\nprint(1, flush=True)\nask()\nwhile True:\n    x = "
        "sorted(range(1000))\n");
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const std::string command = "exec /usr/bin/python3 " + script.path + " <&" + std::to_string(ends[0]);
    const Program python({"/bin/sh", "-c", command.c_str()});
    python.wait();
    RankWatch rank(python.pid(), kTimeout);
    auto news = watch(rank, 3 * kTimeout);
    ASSERT_TRUE(news && news->still);
    EXPECT_THAT(news->still->where, StartsWith("ask ("));
    EXPECT_FALSE(watch(rank, kTimeout)) << "told once";
    ASSERT_EQ(write(ends[1], "x", 1), 1);
    news = watch(rank, kTimeout);
    ASSERT_TRUE(news);
    EXPECT_FALSE(news->still);
    close(ends[0]);
    close(ends[1]);
}

TEST(RankWatch, AStoppedProgramHangs) {
    const Script script(
        "def train():\n    print(1, flush=True)\n    while True:\n        x = "
        "sorted(range(1000))\ntrain()\n");
    const Program python({"/usr/bin/python3", script.path.c_str()});
    python.wait();
    ASSERT_EQ(kill(python.pid(), SIGSTOP), 0);
    RankWatch rank(python.pid(), kTimeout);
    const auto news = watch(rank, 3 * kTimeout);
    ASSERT_TRUE(news && news->still);
    EXPECT_THAT(news->still->where, StartsWith("train ("));
    EXPECT_THAT(news->still->where, HasSubstr(", stopped by a signal"));
}

TEST(RankWatch, AShellScriptIsWhatItRuns) {
    const Script script(
        "import time\ndef load_batch():\n    time.sleep(1000)\nprint(1, flush=True)\nload_batch()\n");
    const std::string command = "/usr/bin/python3 " + script.path + "; true";
    const Program shell({"/bin/sh", "-c", command.c_str()});
    shell.wait();
    RankWatch rank(shell.pid(), kTimeout);
    const auto news = watch(rank, 3 * kTimeout);
    ASSERT_TRUE(news && news->still);
    EXPECT_THAT(news->still->where, StartsWith("load_batch ("));
    EXPECT_TRUE(std::ranges::any_of(news->calls.frames,
                                    [](const Frame& frame) { return frame.function == "load_batch"; }));
}

TEST(RankWatch, AProgramWithoutPythonThatSleepsHangs) {
    const Program sleeper({"/bin/sh", "-c", "echo 1; sleep 1000; true"});
    sleeper.wait();
    RankWatch rank(sleeper.pid(), kTimeout);
    const auto news = watch(rank, 3 * kTimeout);
    ASSERT_TRUE(news && news->still);
}

// As libdp waits: for another rank, with a look at the clock now and then. The name tells the watch what it is.
extern "C" [[gnu::noinline]] void dp_wait_in_test(milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    for (auto left = end - std::chrono::steady_clock::now(); left > milliseconds(0);
         left = end - std::chrono::steady_clock::now())
        poll(nullptr, 0, static_cast<int>(std::min<int64_t>(100, left / milliseconds(1) + 1)));
}

// A process that does this.
class Fork {
 public:
    explicit Fork(const std::function<void()>& work) : pid_(fork()) {
        if (pid_ != 0) return;
        work();
        _exit(0);
    }
    ~Fork() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    pid_t pid() const { return pid_; }

 private:
    pid_t pid_;
};

TEST(RankWatch, AWaitThatLooksAtTheClockHangs) {
    const Fork waits([] { dp_wait_in_test(seconds(1000)); });
    RankWatch rank(waits.pid(), kTimeout);
    const auto news = watch(rank, 3 * kTimeout);
    ASSERT_TRUE(news && news->still);
    EXPECT_TRUE(news->still->waits_for_others);
    EXPECT_THAT(news->still->where, StartsWith("dp_wait_in_test ("));
}

TEST(RankWatch, ALoopOfSuchWaitsDoesNot) {
    const Fork works([] {
        for (int step = 0; step < 1000; ++step) dp_wait_in_test(kTimeout * 6 / 10);
    });
    RankWatch rank(works.pid(), kTimeout);
    const auto news = watch(rank, 4 * kTimeout);
    EXPECT_FALSE(news && news->still);
}

TEST(RankWatch, WhoIsStoppedInAWaitDoesNotWait) {
    const Fork waits([] { dp_wait_in_test(seconds(1000)); }), other([] { dp_wait_in_test(seconds(1000)); });
    usleep(300'000);
    kill(waits.pid(), SIGSTOP);
    RankWatch stopped(waits.pid(), kTimeout), waiting(other.pid(), kTimeout);
    const auto news = watch(stopped, 3 * kTimeout), others = watch(waiting, 3 * kTimeout);
    ASSERT_TRUE(news && news->still && others && others->still);
    EXPECT_FALSE(news->still->waits_for_others);
    EXPECT_THAT(news->still->where, HasSubstr(", stopped by a signal"));
    EXPECT_NE(news->still->place, others->still->place);
}

TEST(RankWatch, WhoHasEndedIsNotWatched) {
    std::optional<RankWatch> rank;
    {
        const Program sleeper({"/bin/sh", "-c", "echo 1; sleep 1000"});
        sleeper.wait();
        rank.emplace(sleeper.pid(), kTimeout);
        EXPECT_TRUE(rank->look(std::chrono::steady_clock::now()));
    }
    bool failed = false;
    for (int i = 0; i < 300 && !failed; ++i) {
        failed = !rank->look(std::chrono::steady_clock::now());
        usleep(10'000);
    }
    EXPECT_TRUE(failed);
}

}  // namespace
}  // namespace dp::stacks
