// SPDX-License-Identifier: Apache-2.0
//
// The daemon's server for keepers on a real socket: who is one, and what they hear.
#include "loop/keeper_server.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unix_socket.hpp"
#include "common/keeper.hpp"
#include "server_test.hpp"

namespace dp {
namespace {

using std::chrono::seconds;

class KeeperServerTest : public ServerTest {
 protected:
    const AbstractAddress address = *AbstractAddress::of("slurm-dp-test/keepers/" + std::to_string(getpid()));
    Fd listener = address.listen(8, SOCK_SEQPACKET);
    std::vector<ControlEvent> events;
    // This process is the task of local rank 1, and somebody else that of 0.
    KeeperServer server{base.get(),
                        listener.get(),
                        2,
                        rejected,
                        [](uint32_t local_rank) { return local_rank == 1 ? getpid() : 1; },
                        [this](const ControlEvent& event) { events.push_back(event); }};

    Fd connect_one(const std::vector<ControlEvent>& packets) const {
        Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        EXPECT_TRUE(address.connect(fd.get()));
        for (const auto& packet : packets) send_control(fd.get(), packet);
        return fd;
    }
    // The next packet; "" at the end.
    std::string hear(const Fd& fd) {
        std::array<char, kMaxControl> packet;
        ssize_t size = -1;
        run(
            [&] {
                if (size < 0) size = recv(fd.get(), packet.data(), packet.size(), 0);
                return size >= 0;
            },
            seconds(5));
        return size > 0 ? std::string(packet.data(), static_cast<size_t>(size)) : "";
    }
};

using Kind = ControlEvent::Kind;

TEST_F(KeeperServerTest, HearsItsKeepersAndTellsThem) {
    const Fd keeper = connect_one({{Kind::keep, 1}, {Kind::task, 1, 4711}, {Kind::exit, 1, 9}});
    run([&] { return events.size() == 2; }, seconds(5));
    EXPECT_EQ(events, (std::vector<ControlEvent>{{Kind::task, 1, 4711}, {Kind::exit, 1, 9}}));
    const NodePlan plan{"10.0.0.1", 29500, 29501, "10.0.0.2", "", 1};
    server.begin_life(plan);
    EXPECT_EQ(hear(keeper), write_plan(plan));
    server.no_other_life();
    EXPECT_EQ(hear(keeper), kNoOtherLife);
}

// It closes its connection at once, and need not be the rank's keeper.
TEST_F(KeeperServerTest, HearsWhatProcessesTellOfTheirEnvironments) {
    const std::string told = std::string("\0RANK=7", 7);
    connect_one({{Kind::environment, 0, 2, told}});
    run([&] { return !events.empty(); }, seconds(5));
    EXPECT_EQ(events, (std::vector<ControlEvent>{{Kind::environment, 0, 2, told}}));
    connect_one({{Kind::environment, 2, 2, told}});
    EXPECT_FALSE(run([&] { return events.size() > 1; }, seconds(1))) << "there is no such task";
}

// One that never stops would keep the daemon from everything else.
TEST_F(KeeperServerTest, WhoIsNoKeeperTellsOnceAConnection) {
    const ControlEvent event{Kind::environment, 0, 2, std::string("\0RANK=7", 7)};
    const Fd teller = connect_one({event, event, {Kind::exit, 0, 9}, {Kind::keep, 1}});
    EXPECT_EQ(hear(teller), "") << "it is closed";
    EXPECT_EQ(events, std::vector<ControlEvent>{event});
}

TEST_F(KeeperServerTest, APlanThatIsTooLongGoesWithoutItsHosts) {
    const Fd keeper = connect_one({{Kind::keep, 1}, {Kind::task, 1, 4711}});
    run([&] { return !events.empty(); }, seconds(5));
    NodePlan plan{"10.0.0.1", 29500, 29501, "10.0.0.2", "", 1};
    const std::string without = write_plan(plan);
    plan.ranks_per_host = "4";
    plan.hosts = std::string(kMaxControl - write_plan(plan).size(), 'a');
    server.begin_life(plan);
    EXPECT_EQ(hear(keeper), write_plan(plan));
    plan.hosts += "a";
    server.begin_life(plan);
    EXPECT_EQ(hear(keeper), without);
}

TEST_F(KeeperServerTest, WhoComesLateHearsOfThePlan) {
    const NodePlan plan{"10.0.0.1", 29500, 29501, "10.0.0.2", "", 1};
    server.begin_life(plan);
    const Fd keeper = connect_one({{Kind::keep, 1}});
    EXPECT_EQ(hear(keeper), write_plan(plan));
}

TEST_F(KeeperServerTest, WhoComesLateHearsThatItIsOver) {
    server.no_other_life();
    const Fd keeper = connect_one({{Kind::keep, 1}});
    EXPECT_EQ(hear(keeper), kNoOtherLife);
}

TEST_F(KeeperServerTest, WhoIsNotTheTaskOfItsRankIsClosedAndHeardNoMore) {
    std::vector<Fd> strangers;
    for (const auto& packets : std::vector<std::vector<ControlEvent>>{
             {{Kind::keep, 0}, {Kind::exit, 0, 9}},  // another process's rank
             {{Kind::keep, 2}},                      // none of this node
             {{Kind::exit, 1, 9}},                   // without a word who it is
             {{Kind::keep, 1}, {Kind::exit, 0, 9}},  // of another rank than its own
             {{Kind::keep, 1}}}) {                   // the second keeper of that rank
        strangers.push_back(connect_one(packets));
        EXPECT_EQ(hear(strangers.back()), "");
    }
    server.begin_life({});
    for (const Fd& stranger : strangers) EXPECT_EQ(hear(stranger), "");
    EXPECT_TRUE(events.empty());
}

}  // namespace
}  // namespace dp
