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
#include "loop/tcp.hpp"

namespace dp {
namespace {

constexpr uid_t kNobody = 65534;

wire::WhoOwns who_owns(const std::string& client, uint32_t client_port, const std::string& server,
                       uint32_t server_port) {
    wire::WhoOwns asked;
    asked.set_connection(7);
    asked.set_client_address(client);
    asked.set_client_port(client_port);
    asked.set_server_address(server);
    asked.set_server_port(server_port);
    return asked;
}

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
    wire::WhoOwns ends() const {
        const int fd = accepted.get();
        const Endpoint peer = peer_end(fd), server = local_end(fd);
        return who_owns(peer.address, peer.port, server.address, server.port);
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
        EXPECT_EQ(ends().client_address(), row.seen);
        const wire::Owner owner = owner_of_client(ends());
        ASSERT_TRUE(owner.has_uid()) << row.address << ": " << owner.problem();
        EXPECT_EQ(owner.uid(), getuid());
        EXPECT_EQ(owner.connection(), 7u);
    }
}

TEST_F(SocketOwnerTest, WhereThereIsOnlyIPv4) {
    listen_on(AF_INET);
    client = connect_to("127.0.0.1", AF_INET);
    accept_one();
    EXPECT_EQ(owner_of_client(ends()).uid(), getuid());
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
    EXPECT_EQ(owner_of_client(ends()).uid(), kNobody);
    accepted.reset();
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST_F(SocketOwnerTest, NobodyWhereThereIsNoSuchConnection) {
    listen_on(AF_INET6);
    client = connect_to("127.0.0.1", AF_INET);
    accept_one();
    const wire::WhoOwns real = ends();
    const std::string c = real.client_address(), s = real.server_address();
    const uint32_t client_port = real.client_port(), port = real.server_port();
    for (const wire::WhoOwns& wrong :
         {who_owns(c, 1, s, port), who_owns(c, client_port, s, 1),
          who_owns("127.0.0.2", client_port, s, port), who_owns(c, client_port, "127.0.0.2", port),
          who_owns("::1", client_port, "::1", port),
          // The kernel answers this with the socket that listens on the port.
          who_owns(c, port, s, 1)}) {
        const wire::Owner owner = owner_of_client(wrong);
        EXPECT_FALSE(owner.has_uid()) << wrong.client_address() << " " << wrong.client_port();
        EXPECT_EQ(owner.problem(), "no process of its node has it open any more");
    }
    for (const wire::WhoOwns& nonsense :
         {who_owns("", 1, "", 1), who_owns("host", 1, "::1", 1), who_owns("::1", 1, "10.0.0.1", 1)})
        EXPECT_EQ(owner_of_client(nonsense).problem(), "its addresses are not valid");
}

TEST_F(SocketOwnerTest, NobodyOnceItIsClosingOrClosed) {
    listen_on(AF_INET6);
    client = connect_to("127.0.0.1", AF_INET);
    accept_one();
    const wire::WhoOwns before = ends();
    shutdown(client.get(), SHUT_WR);
    EXPECT_FALSE(owner_of_client(before).has_uid());
    client.reset();
    EXPECT_FALSE(owner_of_client(before).has_uid());
    accepted.reset();
    EXPECT_FALSE(owner_of_client(before).has_uid());
}

}  // namespace
}  // namespace dp
