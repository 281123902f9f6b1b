// SPDX-License-Identifier: Apache-2.0
#include "libdp/inbox.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <optional>

#include "base/awake.hpp"
#include "socket_io.hpp"

namespace dp {
namespace {

constexpr std::chrono::milliseconds kLong{10000};

// Both ends of a rank's connection, and what the rank has got from it.
class Connection {
 public:
    Connection() {
        int ends[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        rank.reset(ends[0]);
        daemon.reset(ends[1]);
        inbox.emplace(rank.get(), Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
                      [this](const wire::ToRank* message) {
                          reader = std::this_thread::get_id();
                          if (message)
                              ++messages;
                          else
                              over = true;
                      });
    }
    ~Connection() {
        shutdown(rank.get(), SHUT_RDWR);
        inbox->stop();
    }
    void say() {
        wire::ToRank message;
        message.mutable_welcome();
        EXPECT_TRUE(send_all(daemon.get(), to_frame(message)));
    }
    void read_until_there_are(int count) {
        inbox->read_until([&] { return messages >= count; }, steady_now() + kLong);
    }

    Fd rank;
    Fd daemon;
    std::atomic<int> messages = 0;
    std::atomic<bool> over = false;
    std::atomic<std::thread::id> reader;
    std::optional<Inbox> inbox;
};

TEST(Inbox, ACallThatIsAloneReadsForItself) {
    Connection c;
    c.say();
    c.say();
    c.read_until_there_are(2);
    EXPECT_EQ(c.messages, 2);
    EXPECT_EQ(c.reader.load(), std::this_thread::get_id());
    const auto begin = steady_now();
    c.inbox->read_until([] { return false; }, begin + std::chrono::milliseconds(20));
    EXPECT_GE(steady_now() - begin, std::chrono::milliseconds(20)) << "it waits as long as it may";
    EXPECT_FALSE(c.inbox->is_own_thread());
}

TEST(Inbox, ASecondCallStartsTheThread) {
    Connection c;
    std::thread first([&] { c.read_until_there_are(1); });
    const auto end = steady_now() + kLong;
    // The first one holds its turn, sooner or later.
    do {
        c.inbox->read_until([&] { return true; }, end);
        c.say();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (c.messages < 1 && steady_now() < end);
    first.join();
    EXPECT_GE(c.messages, 1);
    c.inbox->start();
    const int before = c.messages;
    c.say();
    while (c.messages <= before && steady_now() < end) std::this_thread::yield();
    EXPECT_NE(c.reader.load(), std::this_thread::get_id());
    c.read_until_there_are(1000);  // leaves the reading to the thread, at once
    EXPECT_LT(steady_now(), end);
}

TEST(Inbox, WhatHasArrivedIsDeliveredByWhoeverStartsTheThread) {
    Connection c;
    c.say();
    c.inbox->start();
    EXPECT_EQ(c.messages, 1);
    EXPECT_EQ(c.reader.load(), std::this_thread::get_id());
    c.daemon.reset();
    const auto end = steady_now() + kLong;
    while (!c.over && steady_now() < end) std::this_thread::yield();
    EXPECT_TRUE(c.over);
    EXPECT_NE(c.reader.load(), std::this_thread::get_id());
    c.inbox->start();  // the thread has ended; nobody waits for it
}

TEST(Inbox, TheThreadTakesOverFromACallThatWaits) {
    Connection c;
    std::thread waiting([&] { c.inbox->read_until([] { return false; }, steady_now() + kLong); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto begin = steady_now();
    c.inbox->start();
    waiting.join();
    EXPECT_LT(steady_now() - begin, kLong / 2);
}

TEST(Inbox, WhatNoDaemonSendsEndsTheConnection) {
    Connection c;
    ASSERT_TRUE(send_all(c.daemon.get(), "\xff\xff\xff\xff garbage"));
    c.inbox->read_until([&] { return c.over.load(); }, steady_now() + kLong);
    EXPECT_TRUE(c.over);
    EXPECT_EQ(c.messages, 0);
}

TEST(Inbox, StartsNoThreadAtTheEnd) {
    Connection c;
    shutdown(c.rank.get(), SHUT_RDWR);
    c.inbox->stop();
    c.inbox->start();
    EXPECT_TRUE(c.over) << "it was read by the one who wanted the thread";
}

}  // namespace
}  // namespace dp
