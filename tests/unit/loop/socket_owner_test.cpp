// SPDX-License-Identifier: Apache-2.0
//
// Whose socket it is, asked of this machine's kernel about real connections over loopback.
#include "loop/socket_owner.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/fd.hpp"
#include "loop/peer_address.hpp"

namespace dp {
namespace {

constexpr uid_t kNobody = 65534;

// A server on every address of both families, as MASTER_PORT is, and one connection to it.
class SocketOwnerTest : public testing::Test {
 protected:
    Fd listener;
    Fd client;
    Fd accepted;

    void listen_on(int family) {
        listener.reset(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_storage any{};
        any.ss_family = static_cast<sa_family_t>(family);
        const int off = 0;
        if (family == AF_INET6) setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        const socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&any), size), 0) << strerror(errno);
        ASSERT_EQ(listen(listener.get(), 8), 0);
    }
    // As a client of that family, to that address.
    Fd connect_to(const std::string& address, int family) const {
        const uint16_t port = local_end(listener.get()).port;
        auto target = *socket_address(address, port);
        if (family == AF_INET6 && target.storage.ss_family == AF_INET)
            target = *socket_address("::ffff:" + address, port);
        Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&target.storage), target.size), 0)
            << strerror(errno);
        return fd;
    }
    void accept_one() { accepted.reset(accept(listener.get(), nullptr, nullptr)); }
    // As the broker sees the connection.
    SocketEnds ends() const {
        const int fd = accepted.get();
        const Endpoint client = peer_end(fd), server = local_end(fd);
        return {client.address, client.port, server.address, server.port};
    }
};

TEST_F(SocketOwnerTest, OfAnyFamilyAsTheServerSeesIt) {
    listen_on(AF_INET6);
    struct Row {
        const char* address;
        int family;
        const char* seen;
    };
    for (const Row& row : {Row{"127.0.0.1", AF_INET, "127.0.0.1"}, Row{"127.0.0.1", AF_INET6, "127.0.0.1"},
                           Row{"::1", AF_INET6, "::1"}}) {
        client = connect_to(row.address, row.family);
        accept_one();
        EXPECT_EQ(ends().client, row.seen);
        const SocketOwner owner = owner_of_client(ends());
        ASSERT_TRUE(owner.uid) << row.address << ": " << owner.problem;
        EXPECT_EQ(*owner.uid, getuid());
    }
}

TEST_F(SocketOwnerTest, WhereThereIsOnlyIPv4) {
    listen_on(AF_INET);
    client = connect_to("127.0.0.1", AF_INET);
    accept_one();
    EXPECT_EQ(owner_of_client(ends()).uid, getuid());
}

TEST_F(SocketOwnerTest, OfAnotherUser) {
    if (getuid() != 0) GTEST_SKIP() << "only root can become another user";
    listen_on(AF_INET6);
    const pid_t child = fork();
    if (child == 0) {
        if (setuid(kNobody) != 0) _exit(1);
        Fd mine = connect_to("127.0.0.1", AF_INET);
        char byte = 0;
        // Until the test closes its end.
        _exit(read(mine.get(), &byte, 1) == 0 ? 0 : 1);
    }
    accept_one();
    EXPECT_EQ(owner_of_client(ends()).uid, kNobody);
    accepted.reset();
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST_F(SocketOwnerTest, NobodyWhereThereIsNoSuchConnection) {
    listen_on(AF_INET6);
    client = connect_to("127.0.0.1", AF_INET);
    accept_one();
    const SocketEnds real = ends();
    for (SocketEnds wrong : {SocketEnds{real.client, 1, real.server, real.server_port},
                             SocketEnds{real.client, real.client_port, real.server, 1},
                             SocketEnds{"127.0.0.2", real.client_port, real.server, real.server_port},
                             SocketEnds{real.client, real.client_port, "127.0.0.2", real.server_port},
                             SocketEnds{"::1", real.client_port, "::1", real.server_port},
                             // The kernel answers this with the socket that listens on the port.
                             SocketEnds{real.client, real.server_port, real.server, 1}}) {
        const SocketOwner owner = owner_of_client(wrong);
        EXPECT_FALSE(owner.uid) << wrong.client << " " << wrong.client_port << " " << wrong.server;
        EXPECT_EQ(owner.problem, "no process of its node has it open any more");
    }
    for (const SocketEnds& nonsense :
         {SocketEnds{"", 1, "", 1}, SocketEnds{"host", 1, "::1", 1}, SocketEnds{"::1", 1, "10.0.0.1", 1}})
        EXPECT_EQ(owner_of_client(nonsense).problem, "its addresses are none");
}

TEST_F(SocketOwnerTest, NobodyOnceItIsClosingOrClosed) {
    listen_on(AF_INET6);
    client = connect_to("127.0.0.1", AF_INET);
    accept_one();
    const SocketEnds before = ends();
    shutdown(client.get(), SHUT_WR);
    EXPECT_FALSE(owner_of_client(before).uid);
    client.reset();
    EXPECT_FALSE(owner_of_client(before).uid);
    accepted.reset();
    EXPECT_FALSE(owner_of_client(before).uid);
}

}  // namespace
}  // namespace dp
