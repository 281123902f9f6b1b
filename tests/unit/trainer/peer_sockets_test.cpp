// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/peer_sockets.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <future>
#include <optional>

#include "base/unix_socket.hpp"

namespace dp::trainer {
namespace {

Fd file_with(const std::string& text) {
    Fd file(memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(pwrite(file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return file;
}

std::string text_in(const Fd& file) {
    std::array<char, 64> text{};
    const ssize_t n = pread(file.get(), text.data(), text.size(), 0);
    return {text.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

struct Node {
    std::vector<std::optional<PeerSockets>> ranks;
    std::vector<SocketName> names;
    std::vector<Fd> files;

    explicit Node(std::size_t size) {
        for (std::size_t rank = 0; rank < size; ++rank) {
            auto opened = PeerSockets::open();
            EXPECT_TRUE(opened) << opened.error().message;
            names.push_back(opened->name());
            ranks.emplace_back(std::move(*opened));
            files.push_back(file_with("of rank " + std::to_string(rank)));
        }
    }
    void send() {
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            const auto called = ranks[rank]->send_fd(names, rank, files[rank].get());
            ASSERT_TRUE(called) << called.error().message;
        }
    }
    std::vector<Fd> accept(std::size_t rank) {
        auto found = ranks[rank]->accept_fds(ranks.size(), rank);
        EXPECT_TRUE(found) << found.error().message;
        return std::move(*found);
    }
};

Fd connected_to(const SocketName& name) {
    Fd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto address =
        AbstractAddress::of(fmt::format("dp-trainer-{:016x}{:016x}", static_cast<std::uint64_t>(name[0]),
                                        static_cast<std::uint64_t>(name[1])));
    EXPECT_TRUE(address && address->connect(connection.get()));
    return connection;
}

// As rank `number` would.
void send_file(const Fd& to, std::uint64_t number, const Fd& file) {
    iovec part{&number, sizeof number};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* note = CMSG_FIRSTHDR(&header);
    const int fd = file.get();
    note->cmsg_level = SOL_SOCKET;
    note->cmsg_type = SCM_RIGHTS;
    note->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(note), &fd, sizeof fd);
    EXPECT_EQ(sendmsg(to.get(), &header, 0), 8);
}

TEST(PeerSocketsTest, EachGetsTheFilesOfTheOthers) {
    Node node(5);
    node.send();
    for (std::size_t rank = 0; rank < 5; ++rank) {
        const auto found = node.accept(rank);
        for (std::size_t other = 0; other < 5; ++other)
            EXPECT_EQ(found[other] ? text_in(found[other]) : "none",
                      other == rank ? "none" : "of rank " + std::to_string(other));
    }
}

TEST(PeerSocketsTest, AStrangerThatConnectsIsPassedOver) {
    Node node(2);
    const Fd silent = connected_to(node.names[0]);
    const Fd talking = connected_to(node.names[0]);
    const std::uint64_t rank = 1;
    ASSERT_EQ(send(talking.get(), &rank, sizeof rank, 0), 8) << "without a file";
    Node others(3);
    const std::vector<SocketName> same_name(3, node.names[0]);
    ASSERT_TRUE(others.ranks[0]->send_fd(same_name, 2, others.files[2].get())) << "no rank 2 here";
    node.send();
    const auto found = node.accept(0);
    EXPECT_EQ(text_in(found[1]), "of rank 1");
}

TEST(PeerSocketsTest, AnotherUserIsNoPeer) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
    Node node(2);
    const pid_t other = fork();
    if (other == 0) {
        const bool is_other = setuid(65534) == 0;
        const std::vector<SocketName> names{node.names[0], SocketName{}};
        const bool called = node.ranks[1]->send_fd(names, 1, node.files[0].get()).has_value();
        send_file(connected_to(node.names[0]), 1, node.files[0]);
        _exit(is_other && !called ? 0 : 1);
    }
    int status = -1;
    waitpid(other, &status, 0);
    EXPECT_EQ(status, 0) << "another user's socket gets no file";
    node.send();
    EXPECT_EQ(text_in(node.accept(0)[1]), "of rank 1");
}

TEST(PeerSocketsTest, WhoDoesNotListenAndWhoHasNotCalledAreErrorsAndNoWaits) {
    Node node(2);
    const auto nobody = node.ranks[0]->accept_fds(2, 0);
    ASSERT_FALSE(nobody);
    EXPECT_NE(nobody.error().message.find("accept"), std::string::npos) << nobody.error().message;
    node.ranks[0].reset();
    const auto called = node.ranks[1]->send_fd(node.names, 1, node.files[1].get());
    ASSERT_FALSE(called);
    EXPECT_NE(called.error().message.find("Connection refused"), std::string::npos) << called.error().message;
}

TEST(PeerSocketsTest, OneThatIsGoneIsToldOnceAndAtOnce) {
    Node node(3);
    node.send();
    std::atomic<int> told = 0;
    std::promise<void> first;
    for (std::size_t rank = 0; rank < 3; ++rank) (void)node.accept(rank);
    ASSERT_TRUE(node.ranks[0]->watch([&] {
        if (++told == 1) first.set_value();
    }));
    node.ranks[2].reset();
    EXPECT_EQ(first.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
    node.ranks[1].reset();
    node.ranks[0].reset();
    EXPECT_EQ(told, 1);
}

TEST(PeerSocketsTest, WhoLeavesFirstIsToldNothing) {
    for (int times = 0; times < 50; ++times) {
        Node node(2);
        node.send();
        std::atomic<int> told = 0;
        for (std::size_t rank = 0; rank < 2; ++rank) (void)node.accept(rank);
        ASSERT_TRUE(node.ranks[0]->watch([&] { ++told; }));
        node.ranks[0].reset();
        EXPECT_EQ(told, 0);
    }
}

}  // namespace
}  // namespace dp::trainer
