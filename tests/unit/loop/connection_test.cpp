// SPDX-License-Identifier: Apache-2.0
#include "loop/connection.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>

#include "base/fd.hpp"
#include "server_test.hpp"

namespace dp {
namespace {

class ConnectionTest : public ::testing::Test {
 protected:
    EventBase base{event_base_new()};
    Fd peer;
    std::unique_ptr<Connection> connection;
    std::string closed;

    void SetUp() override {
        signal(SIGPIPE, SIG_IGN);  // as the daemon does
        std::array<int, 2> ends{};
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
        peer.reset(ends[1]);
        connection = std::make_unique<Connection>(base.get(), ends[0], 1 << 20);
        connection->start([](std::string_view) {}, [this](const std::string& why, bool) { closed = why; });
    }
    // What the peer can read now.
    std::string read_all() const {
        std::string all;
        std::array<char, 65536> part{};
        for (ssize_t n = 0; (n = read(peer.get(), part.data(), part.size())) > 0;)
            all.append(part.data(), static_cast<size_t>(n));
        return all;
    }
    void turn() const { event_base_loop(base.get(), EVLOOP_ONCE | EVLOOP_NONBLOCK); }
};

TEST_F(ConnectionTest, SendsAtOnceAndTheRestInOrder) {
    connection->send("first");
    EXPECT_TRUE(connection->is_idle());
    EXPECT_EQ(read_all(), "first") << "no turn of the loop";
    // More than the socket takes; what comes later must not pass it.
    const std::string large(4 << 20, 'x');
    connection->send(large);
    connection->send("last");
    EXPECT_TRUE(connection->has_unsent());
    EXPECT_FALSE(connection->is_idle());
    std::string got;
    for (int i = 0; i < 10'000 && got.size() < large.size() + 4; ++i) {
        got += read_all();
        turn();
    }
    EXPECT_EQ(got, large + "last");
    EXPECT_TRUE(connection->is_idle());
}

TEST_F(ConnectionTest, IsNotIdleWhereSomethingIsUnread) {
    ASSERT_EQ(write(peer.get(), "\0\0", 2), 2);
    EXPECT_FALSE(connection->is_idle());
    turn();
    EXPECT_TRUE(connection->is_idle());
}

TEST_F(ConnectionTest, SendingToAPeerThatIsGoneIsToldByTheLoop) {
    peer.reset();
    connection->send("lost");
    for (int i = 0; i < 100 && closed.empty(); ++i) turn();
    EXPECT_FALSE(closed.empty());
}

}  // namespace
}  // namespace dp
