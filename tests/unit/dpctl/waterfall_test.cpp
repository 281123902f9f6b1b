// SPDX-License-Identifier: Apache-2.0
#include "dpctl/commands.hpp"

#include <gtest/gtest.h>

#include "../engine/simulation.hpp"

namespace dp {
namespace {

wire::StepStatus::Rank rank_at(uint32_t number, int64_t started, int64_t hello, int64_t id, int64_t ready) {
    wire::StepStatus::Rank rank;
    rank.set_rank(number);
    rank.set_started_ms(started);
    rank.set_hello_ms(hello);
    rank.set_id_ms(id);
    rank.set_ready_ms(ready);
    return rank;
}

TEST(Waterfall, NamesWhomToLookAt) {
    wire::StepStatus status;
    status.set_world_size(4);
    for (uint32_t n = 0; n < 2; ++n) status.add_nodes()->set_host("gpu" + std::to_string(n));
    *status.mutable_nodes(0)->add_ranks() = rank_at(0, 5, 25, 205, 405);
    *status.mutable_nodes(0)->add_ranks() = rank_at(2, 5, 15, 205, 395);
    *status.mutable_nodes(1)->add_ranks() = rank_at(1, 15, 25, 205, 405);
    *status.mutable_nodes(1)->add_ranks() = rank_at(3, 15, 205, 205, 405);
    EXPECT_EQ(waterfall_text("12.0", status),
              "step 12.0: 4 ranks on 2 nodes; ms since the first task's start: . until started, - until "
              "hello, = until "
              "id, # until ready\n"
              "  RANK  HOST  started  hello   id  ready\n"
              "     0  gpu0        0     20  200    400  --==================####################\n"
              "     1  gpu1       10     20  200    400  .-==================####################\n"
              "     2  gpu0        0     10  200    390  -===================###################\n"
              "     3  gpu1       10    200  200    400  .-------------------####################\n"
              "to be started: median 10 ms, worst 10 ms (rank 1 on gpu1)\n"
              "from its start to its hello: median 20 ms, worst 190 ms (rank 3 on gpu1)\n"
              "from its hello to its unique id: median 180 ms, worst 190 ms (rank 2 on gpu0)\n"
              "from its unique id to its communicator: median 200 ms, worst 200 ms (rank 0 on gpu0)\n"
              "look at rank 3 on gpu1 (190 ms from its start to its hello)\n");
}

TEST(Waterfall, OfALargeWorldShowsTheSlowest) {
    wire::StepStatus status;
    status.set_world_size(1000);
    auto* node = status.add_nodes();
    node->set_host("gpu0");
    for (uint32_t rank = 0; rank < 1000; ++rank)
        *node->add_ranks() = rank_at(rank, 0, 10, 20, rank == 777 ? 90 : 30);
    const std::string text = waterfall_text("12.0", status);
    EXPECT_NE(text.find("the 32 slowest:"), std::string::npos);
    EXPECT_NE(text.find("   777  gpu0"), std::string::npos);
    EXPECT_NE(text.find("look at rank 777 on gpu0 (70 ms from its unique id to its communicator)"),
              std::string::npos);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 1 + 1 + 32 + 4 + 1);
}

TEST(Waterfall, OfAWorldThatHasNotBegunIsNoError) {
    wire::StepStatus status;
    status.set_world_size(1);
    status.add_nodes()->add_ranks();
    EXPECT_NE(waterfall_text("12.0", status).find("no rank stands out"), std::string::npos);
}

// From the nodes' own clocks, which nobody has set.
TEST(Waterfall, TimesAreTheBrokersWhateverANodesClockSays) {
    Simulation s(2, 1);
    s.clock_ahead[1] = Time(5000);
    s.join(0);
    s.pass(Time(100));
    s.start(1);  // before its node has connected
    s.pass(Time(100));
    s.join(1);
    s.start(0);
    s.pass(Time(50));
    s.hello(0);
    s.hello(1);
    s.arrive(1, 1);
    s.pass(Time(200));
    s.arrive(0, 1, "world", {}, "id");
    wire::FromRank ready;
    ready.mutable_ready();
    s.pass(Time(50));
    s.from_rank(1, ready);
    wire::FromRank ask;
    ask.mutable_status();
    s.from_rank(0, ask);
    const auto& rank = s.told_status.nodes(1).ranks(0);
    EXPECT_EQ(rank.started_ms(), 100);
    EXPECT_EQ(rank.hello_ms(), 250);
    EXPECT_EQ(rank.id_ms(), 450);
    EXPECT_EQ(rank.ready_ms(), 500);
    EXPECT_FALSE(s.told_status.nodes(0).ranks(0).has_ready_ms());
}

}  // namespace
}  // namespace dp
