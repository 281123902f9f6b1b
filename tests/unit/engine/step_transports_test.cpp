// SPDX-License-Identifier: Apache-2.0
#include "engine/step_transports.hpp"

#include <gtest/gtest.h>

#include "simulation.hpp"

namespace dp {
namespace {

using Lines = std::vector<std::string>;

wire::FromNode found(const char* local, const char* network, const char* fell_back = "",
                     const char* log = "") {
    wire::NcclTransports transports;
    transports.set_local(local);
    transports.set_network(network);
    transports.set_fell_back(fell_back);
    transports.set_log(log);
    return wrap(&wire::FromNode::mutable_nccl_transports, std::move(transports));
}

struct Step : Simulation {
    explicit Step(uint32_t count) : Simulation(count, 2, Time(10000), false, FailureAction::report) {
        join_all();
        start_all();
        hello_all();
        log.clear();
    }
    Lines take() { return std::exchange(log, {}); }
};

TEST(StepTransports, AreToldOnceWhenAllNodesHaveSaidTheirs) {
    Step step(2);
    step.answer(1, found("P2P over NVLink", "IB mlx5_0"));
    EXPECT_EQ(step.take(), Lines{});
    step.answer(0, found("P2P over NVLink", "IB mlx5_0"));
    EXPECT_EQ(step.take(), Lines{"NCCL's transports: P2P over NVLink inside nodes, IB mlx5_0 between nodes"});
    step.answer(0, found("P2P over NVLink", "IB mlx5_0"));
    step.pass(kTransportsCome + Time(1000), Time(1000));
    EXPECT_EQ(step.take(), Lines{});
}

TEST(StepTransports, OfOneNodeHaveNoPlaces) {
    Step step(1);
    step.answer(0, found("", "Socket eth0"));
    EXPECT_EQ(step.take(), Lines{"NCCL's transports: Socket eth0"});
}

TEST(StepTransports, NodesThatAreAlikeAreToldTogether) {
    Step step(3);
    step.answer(0, found("SHM", "IB mlx5_0"));
    step.answer(1, found("", "Socket eth0", "mlx5_0 is up, but NCCL uses TCP", "/nccl.2"));
    step.answer(2, found("SHM", "IB mlx5_0"));
    EXPECT_EQ(step.take(),
              (Lines{"NCCL's transports on gpu1: Socket eth0 between nodes",
                     "on gpu1 mlx5_0 is up, but NCCL uses TCP; see the lines with NET/ in /nccl.2",
                     "NCCL's transports on gpu[0,2]: SHM inside nodes, IB mlx5_0 between nodes"}));
}

TEST(StepTransports, ASilentNodeIsWaitedForSomeTime) {
    Step step(2);
    step.answer(0, found("SHM", "IB mlx5_0"));
    step.pass(kTransportsCome - Time(1000), Time(1000));
    EXPECT_EQ(step.take(), Lines{});
    step.pass(Time(2000), Time(1000));
    EXPECT_EQ(step.take(), Lines{"NCCL's transports on gpu0: SHM inside nodes, IB mlx5_0 between nodes"});
    step.answer(1, found("SHM", "IB mlx5_1"));
    step.pass(kTransportsCome + Time(1000), Time(1000));
    EXPECT_EQ(step.take(), Lines{"NCCL's transports on gpu1: SHM inside nodes, IB mlx5_1 between nodes"});
}

TEST(StepTransports, NodesThatFellBackAreToldTogetherWithTheFirstOnesLog) {
    Step step(2);
    step.answer(0, found("", "Socket eth0", "mlx5_0 is up, but NCCL uses TCP", "/nccl.0"));
    step.answer(1, found("", "Socket eth0", "mlx5_0 is up, but NCCL uses TCP", "/nccl.2"));
    EXPECT_EQ(step.take(),
              (Lines{"NCCL's transports: Socket eth0 between nodes",
                     "on gpu[0-1] mlx5_0 is up, but NCCL uses TCP; see the lines with NET/ in /nccl.0"}));
}

TEST(StepTransports, ALateNodeIsToldOfAlsoIfItIsLikeTheFirst) {
    Step step(2);
    step.answer(0, found("SHM", "IB mlx5_0"));
    step.pass(kTransportsCome + Time(1000), Time(1000));
    EXPECT_EQ(step.take(), Lines{"NCCL's transports on gpu0: SHM inside nodes, IB mlx5_0 between nodes"});
    step.answer(1, found("SHM", "IB mlx5_0"));
    step.pass(kTransportsCome + Time(1000), Time(1000));
    EXPECT_EQ(step.take(), Lines{"NCCL's transports: SHM inside nodes, IB mlx5_0 between nodes"});
}

TEST(StepTransports, ACommunicatorThatComesLaterIsToldOf) {
    Step step(2);
    for (uint32_t node = 0; node < 2; ++node) step.answer(node, found("SHM", ""));
    EXPECT_EQ(step.take(), Lines{"NCCL's transports: SHM inside nodes"});
    for (uint32_t node = 0; node < 2; ++node) step.answer(node, found("SHM", "IB mlx5_0"));
    EXPECT_EQ(step.take(), Lines{"NCCL's transports: SHM inside nodes, IB mlx5_0 between nodes"});
}

TEST(StepTransports, TooManyKindsAreLeftOut) {
    Step step(10);
    for (uint32_t node = 0; node < 10; ++node)
        step.answer(node, found("", ("IB mlx5_" + std::to_string(node)).c_str()));
    const auto lines = step.take();
    ASSERT_EQ(lines.size(), kMostTransports + 1);
    EXPECT_EQ(lines.back(), "NCCL's transports on gpu[8-9]: other kinds, not listed");
}

TEST(StepTransports, WhatANodeSaysIsCutAndPrintable) {
    Step step(1);
    step.answer(0, found("\x1b[31m", std::string(5000, 'x').c_str()));
    const auto lines = step.take();
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0].find('\x1b'), lines[0].npos);
    EXPECT_LT(lines[0].size(), 600u);
}

TEST(StepTransports, AreToldAgainInTheNextGenerationIfTheyAreNew) {
    StepTransports transports;
    Membership members(2, 1, std::vector<std::string>{"gpu0"});
    wire::Join join;
    join.set_host("gpu0");
    join.add_ranks(0);
    join.add_ranks(1);
    ASSERT_EQ(members.join(join, Time(0)), std::nullopt);
    const auto tell = [&](const char* local) {
        transports.note(0, found(local, "").nccl_transports(), Time(0));
        return transports.take(members, Time(0));
    };
    EXPECT_EQ(tell("P2P"), Lines{"NCCL's transports: P2P"});
    transports.begin_generation();
    EXPECT_EQ(tell("P2P"), Lines{});
    transports.begin_generation();
    EXPECT_EQ(tell("SHM"), Lines{"NCCL's transports: SHM"});
}

}  // namespace
}  // namespace dp
