// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/peer_sockets.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <future>
#include <optional>

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
    std::vector<DoorNumber> doors;
    std::vector<Fd> files;

    explicit Node(std::size_t size) {
        for (std::size_t rank = 0; rank < size; ++rank) {
            auto opened = PeerSockets::open();
            EXPECT_TRUE(opened) << opened.error().message;
            doors.push_back(opened->door());
            ranks.emplace_back(std::move(*opened));
            files.push_back(file_with("of rank " + std::to_string(rank)));
        }
    }
    void call() {
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            const auto called = ranks[rank]->call_on(doors, rank, files[rank].get());
            ASSERT_TRUE(called) << called.error().message;
        }
    }
    std::vector<Fd> let_in(std::size_t rank) {
        auto found = ranks[rank]->let_in(ranks.size(), rank);
        EXPECT_TRUE(found) << found.error().message;
        return std::move(*found);
    }
};

Fd connected_to(const DoorNumber& door) {
    Fd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const std::string name = fmt::format("dp-trainer-{:016x}{:016x}", static_cast<std::uint64_t>(door[0]),
                                         static_cast<std::uint64_t>(door[1]));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
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

TEST(NeighboursTest, EachGetsTheFilesOfTheOthers) {
    Node node(5);
    node.call();
    for (std::size_t rank = 0; rank < 5; ++rank) {
        const auto found = node.let_in(rank);
        for (std::size_t other = 0; other < 5; ++other)
            EXPECT_EQ(found[other] ? text_in(found[other]) : "none",
                      other == rank ? "none" : "of rank " + std::to_string(other));
    }
}

TEST(NeighboursTest, AStrangerAtTheDoorIsPassedOver) {
    Node node(2);
    const Fd silent = connected_to(node.doors[0]);
    const Fd talking = connected_to(node.doors[0]);
    const std::uint64_t rank = 1;
    ASSERT_EQ(send(talking.get(), &rank, sizeof rank, 0), 8) << "without a file";
    Node others(3);
    const std::vector<DoorNumber> same_door(3, node.doors[0]);
    ASSERT_TRUE(others.ranks[0]->call_on(same_door, 2, others.files[2].get())) << "no rank 2 here";
    node.call();
    const auto found = node.let_in(0);
    EXPECT_EQ(text_in(found[1]), "of rank 1");
}

TEST(NeighboursTest, AnotherUserIsNoNeighbour) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
    Node node(2);
    const pid_t other = fork();
    if (other == 0) {
        const bool is_other = setuid(65534) == 0;
        const std::vector<DoorNumber> doors{node.doors[0], DoorNumber{}};
        const bool called = node.ranks[1]->call_on(doors, 1, node.files[0].get()).has_value();
        send_file(connected_to(node.doors[0]), 1, node.files[0]);
        _exit(is_other && !called ? 0 : 1);
    }
    int status = -1;
    waitpid(other, &status, 0);
    EXPECT_EQ(status, 0) << "a door of another user's gets no file";
    node.call();
    EXPECT_EQ(text_in(node.let_in(0)[1]), "of rank 1");
}

TEST(NeighboursTest, WhoDoesNotListenAndWhoHasNotCalledAreErrorsAndNoWaits) {
    Node node(2);
    const auto nobody = node.ranks[0]->let_in(2, 0);
    ASSERT_FALSE(nobody);
    EXPECT_NE(nobody.error().message.find("accept"), std::string::npos) << nobody.error().message;
    node.ranks[0].reset();
    const auto called = node.ranks[1]->call_on(node.doors, 1, node.files[1].get());
    ASSERT_FALSE(called);
    EXPECT_NE(called.error().message.find("Connection refused"), std::string::npos) << called.error().message;
}

TEST(NeighboursTest, OneThatIsGoneIsToldOnceAndAtOnce) {
    Node node(3);
    node.call();
    std::atomic<int> told = 0;
    std::promise<void> first;
    for (std::size_t rank = 0; rank < 3; ++rank) (void)node.let_in(rank);
    ASSERT_TRUE(node.ranks[0]->watch([&] {
        if (++told == 1) first.set_value();
    }));
    node.ranks[2].reset();
    EXPECT_EQ(first.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
    node.ranks[1].reset();
    node.ranks[0].reset();
    EXPECT_EQ(told, 1);
}

TEST(NeighboursTest, WhoLeavesFirstIsToldNothing) {
    for (int times = 0; times < 50; ++times) {
        Node node(2);
        node.call();
        std::atomic<int> told = 0;
        for (std::size_t rank = 0; rank < 2; ++rank) (void)node.let_in(rank);
        ASSERT_TRUE(node.ranks[0]->watch([&] { ++told; }));
        node.ranks[0].reset();
        EXPECT_EQ(told, 0);
    }
}

}  // namespace
}  // namespace dp::trainer
