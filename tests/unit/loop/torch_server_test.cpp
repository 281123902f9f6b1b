// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's store on a real socket: not a byte for whom nobody vouches, and nobody who floods it or does not
// read harms the others. What it answers is tested without sockets in torch/store_test.cpp.
#include "loop/torch_server.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>

#include "../torch/bytes.hpp"
#include "common/node_setup.hpp"
#include "loop/tcp.hpp"
#include "server_test.hpp"

namespace dp {
namespace {

using namespace torch_bytes;
using std::chrono::seconds;

class TorchServerTest : public ServerTest {
 protected:
    BoundPort port = *listen_on_first_free(candidate_ports({79, 1, 0, ""}), "the test");
    std::vector<wire::WhoOwns> asked;
    std::vector<uint32_t> arrived;  // their nodes
    bool admit_all = false;
    static constexpr uint32_t kNode = 3;
    TorchServer server{base.get(),
                       port.socket.get(),
                       2,
                       rejected,
                       [this](const wire::WhoOwns& who) {
                           asked.push_back(who);
                           if (admit_all) server.decide({who.connection(), "", kNode});
                       },
                       [this](uint32_t node) { arrived.push_back(node); }};

    Fd connect_one() const {
        Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        auto target = *socket_address("127.0.0.1", port.port);
        [[maybe_unused]] int ignored =
            connect(fd.get(), reinterpret_cast<sockaddr*>(&target.storage), target.size);
        return fd;
    }
    // Until all of it is taken, or nobody takes more; → how much was.
    size_t send_all(const Fd& fd, const std::string& bytes) {
        size_t sent = 0;
        run(
            [&] {
                const ssize_t n = ::send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
                if (n > 0) sent += static_cast<size_t>(n);
                return sent == bytes.size();
            },
            seconds(2));
        return sent;
    }
    std::string receive(const Fd& fd, size_t size) {
        std::string got(size, '\0');
        size_t have = 0;
        run([&] {
            const ssize_t n = recv(fd.get(), got.data() + have, size - have, 0);
            if (n > 0) have += static_cast<size_t>(n);
            return have == size || n == 0;
        });
        got.resize(have);
        return got;
    }
    std::string answer(const Fd& fd, const std::string& request, size_t size) {
        send_all(fd, request);
        return receive(fd, size);
    }
};

TEST_F(TorchServerTest, NotAByteIsReadOrAnsweredBeforeSomebodyVouches) {
    Fd client = connect_one();
    send_all(client, kGreeting + op(4) + s("n") + u64(1) + op(13) + u(42, 4));
    pause();
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].client_address(), "127.0.0.1");
    EXPECT_EQ(asked[0].client_port(), local_end(client.get()).port);
    EXPECT_EQ(asked[0].server_address(), "127.0.0.1");
    EXPECT_EQ(asked[0].server_port(), port.port);
    char byte = 0;
    EXPECT_EQ(recv(client.get(), &byte, 1, MSG_DONTWAIT), -1);
    server.decide({asked[0].connection(), ""});
    EXPECT_EQ(receive(client, 12), u64(1) + u(42, 4));
}

TEST_F(TorchServerTest, WhoOpensTheStoreIsReportedWithItsNode) {
    admit_all = true;
    Fd looks = connect_one();
    EXPECT_EQ(answer(looks, kGreeting + op(13) + u(1, 4), 4), u(1, 4));
    EXPECT_EQ(arrived, std::vector<uint32_t>{});
    Fd comes = connect_one();
    EXPECT_EQ(answer(comes, kGreeting + op(4) + s("init/") + u64(1), 8), u64(1));
    EXPECT_EQ(arrived, std::vector<uint32_t>{kNode});
}

TEST_F(TorchServerTest, WhoIsRefusedGetsNothingAndLeavesNothing) {
    Fd client = connect_one();
    send_all(client, kGreeting + op(1) + s("k") + s("evil"));
    ASSERT_TRUE(run([&] { return !asked.empty(); }));
    server.decide({asked[0].connection(), "it belongs to user id 1002"});
    EXPECT_EQ(until_closed(client), "");
    server.decide({asked[0].connection(), ""});  // no second thoughts
    admit_all = true;
    Fd good = connect_one();
    EXPECT_EQ(answer(good, kGreeting + op(3) + s("k"), 8), u64(0));
}

TEST_F(TorchServerTest, WhatWasSentByWhoIsGoneIsNotRead) {
    // Its port may belong to another by the time somebody vouches for that.
    for (bool with_reset : {false, true}) {
        asked.clear();
        Fd client = connect_one();
        send_all(client, kGreeting + op(1) + s("k") + s("evil"));
        ASSERT_TRUE(run([&] { return !asked.empty(); }));
        const linger abort{1, 0};
        if (with_reset) setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
        client.reset();
        pause();
        server.decide({asked[0].connection(), ""});
        EXPECT_EQ(server.clients(), 0u);
    }
    admit_all = true;
    Fd good = connect_one();
    EXPECT_EQ(answer(good, kGreeting + op(3) + s("k"), 8), u64(0));
}

TEST_F(TorchServerTest, AStepHasNoMoreConnectionsThanItCanUse) {
    admit_all = true;
    std::vector<Fd> clients;
    const size_t most = kMoreTorchClients + 2 * kTorchClientsARank;
    for (size_t i = 0; i < most + 1; ++i) clients.push_back(connect_one());
    ASSERT_TRUE(run([&] { return asked.size() == most + 1; }));
    EXPECT_EQ(server.clients(), most);
    clients.front().reset();
    ASSERT_TRUE(run([&] { return server.clients() == most - 1; }));
    Fd again = connect_one();
    EXPECT_EQ(answer(again, kGreeting + op(13) + u(1, 4), 4), u(1, 4));
}

TEST_F(TorchServerTest, WhoDoesNotReadIsNotServedUntilItDoes) {
    admit_all = true;
    Fd slow = connect_one();
    Fd other = connect_one();
    const std::string value(100000, 'v');
    send_all(other, kGreeting + op(1) + s("k") + s(value));
    EXPECT_EQ(answer(other, op(13) + u(1, 4), 4), u(1, 4));
    // 300,000 GETs would be 30 GB of replies; what is not answered is not read either.
    const std::string one = op(3) + s("k");
    std::string flood = kGreeting;
    for (int i = 0; i < 300000; ++i) flood += one;
    flood += std::string(8 << 20, 'x');
    const size_t sent = send_all(slow, flood);
    EXPECT_LT(sent, flood.size());
    EXPECT_EQ(answer(other, op(13) + u(2, 4), 4), u(2, 4));
    for (int i = 0; i < 100; ++i) ASSERT_EQ(receive(slow, 8 + value.size()), s(value)) << i;
}

TEST_F(TorchServerTest, WhoWatchesAKeyAndDoesNotReadIsClosed) {
    admit_all = true;
    Fd watcher = connect_one();
    ASSERT_EQ(answer(watcher, op(7) + s("k"), 1), op(3));  // a client of 1.13
    Fd writer = connect_one();
    ASSERT_EQ(answer(writer, kGreeting + op(13) + u(1, 4), 4), u(1, 4));
    const std::string set = op(1) + s("k") + s(std::string(8 << 20, 'v'));
    for (int i = 0; i < 40 && server.clients() == 2; ++i) send_all(writer, set);
    EXPECT_EQ(server.clients(), 1u);
    EXPECT_EQ(answer(writer, op(13) + u(2, 4), 4), u(2, 4));
}

TEST_F(TorchServerTest, GarbageClosesThatConnectionAlone) {
    admit_all = true;
    Fd good = connect_one();
    EXPECT_EQ(answer(good, kGreeting + op(13) + u(1, 4), 4), u(1, 4));
    Fd bad = connect_one();
    send_all(bad, "GET / HTTP/1.1\r\n\r\n");
    EXPECT_EQ(until_closed(bad), "");
    EXPECT_EQ(answer(good, op(13) + u(2, 4), 4), u(2, 4));
}

}  // namespace
}  // namespace dp
