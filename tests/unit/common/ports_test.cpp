// SPDX-License-Identifier: Apache-2.0
#include "common/ports.hpp"

#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <set>

#include "common/node_setup.hpp"

namespace dp {
namespace {

TEST(CandidatePorts, AreEqualForOneStepAndInRange) {
    const auto ports = candidate_ports({17, 3, 0, ""});
    EXPECT_EQ(ports, candidate_ports({17, 3, 0, ""}));
    EXPECT_EQ(ports.size(), kCandidatePorts);
    EXPECT_EQ(std::set<uint16_t>(ports.begin(), ports.end()).size(), ports.size());
    for (uint16_t port : ports) {
        EXPECT_GE(port, kFirstPort);
        EXPECT_LE(port, kLastPort);
    }
}

TEST(CandidatePorts, DifferForNeighbours) {
    std::set<uint16_t> first;
    for (uint32_t job = 1; job <= 20; ++job)
        for (uint32_t step = 0; step < 5; ++step)
            for (uint32_t restart = 0; restart < 2; ++restart)
                first.insert(candidate_ports({job, step, restart, ""})[0]);
    EXPECT_GT(first.size(), 190u);  // of 200, with some birthdays in 12768
}

TEST(CandidatePorts, BeginWithThoseThatSlurmReserved) {
    const auto ports = candidate_ports({1, 0, 0, "12000-12002,12010"});
    EXPECT_EQ((std::vector<uint16_t>(ports.begin(), ports.begin() + 4)),
              (std::vector<uint16_t>{12000, 12001, 12002, 12010}));
    EXPECT_EQ(ports.size(), 4 + kCandidatePorts);
    // What Slurm would not write is passed over.
    EXPECT_EQ(candidate_ports({1, 0, 0, "x,0-5,70000,9-"}).size(), kCandidatePorts);
}

TEST(CandidatePorts, InsideTheEphemeralRangeComeLast) {
    EXPECT_EQ(binding_order({1, 40000, 2, 50000, 3}, {32768, 60999}),
              (std::vector<uint16_t>{1, 2, 3, 40000, 50000}));
    EXPECT_EQ(binding_order({1, 2}, {0, 0}), (std::vector<uint16_t>{1, 2}));
}

TEST(CandidatePorts, ReservedOnesInsideTheEphemeralRangeAreMentioned) {
    const PortRange linux_default{32768, 60999};
    for (const char* fine : {"", "12000-12004", "32767", "61000-61010", "nonsense"})
        EXPECT_EQ(ephemeral_warning(fine, linux_default), "") << fine;
    EXPECT_EQ(ephemeral_warning("40000-40002", {}), "");
    for (const char* inside : {"40000-40002", "32766-32769", "12000,60999"}) {
        const std::string said = ephemeral_warning(inside, linux_default);
        EXPECT_NE(said.find(inside), std::string::npos) << said;
        EXPECT_NE(said.find("32768-60999"), std::string::npos) << said;
    }
}

TEST(BoundPorts, ATakenPortIsPassedOver) {
    const auto candidates = candidate_ports({4242, 1, 0, ""});
    auto first = listen_on_first_free(candidates, "a test");
    ASSERT_TRUE(first);
    auto second = listen_on_first_free(candidates, "a test");
    ASSERT_TRUE(second);
    EXPECT_NE(first->port, second->port);
}

TEST(BoundPorts, AHeldPortServesWhoeverReusesIt) {
    const auto candidates = candidate_ports({4243, 1, 0, ""});
    auto held = hold_first_free(candidates, "a test");
    ASSERT_TRUE(held);
    auto other = hold_first_free(candidates, "a test");
    ASSERT_TRUE(other);
    EXPECT_NE(held->port, other->port);  // our own next step is kept out

    // A server as PyTorch, gRPC and practically all others make theirs.
    Fd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int on = 1;
    setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(held->port);
    EXPECT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(server.get(), 5), 0);
}

TEST(BoundPorts, NoneFreeNamesThePorts) {
    auto all = candidate_ports({4244, 1, 0, ""});
    all.resize(3);
    std::vector<BoundPort> taken;
    for (uint16_t port : all) {
        auto one = listen_on_first_free({port}, "a test");
        if (one) taken.push_back(std::move(*one));
    }
    auto none = listen_on_first_free(all, "a test");
    ASSERT_FALSE(none);
    EXPECT_NE(none.error().message.find(std::to_string(all[0])), std::string::npos) << none.error().message;
    EXPECT_NE(none.error().message.find("all 3 candidates are in use"), std::string::npos);
}

}  // namespace
}  // namespace dp
