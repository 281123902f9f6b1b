// SPDX-License-Identifier: Apache-2.0
//
// The socket pair in which a call-back that slurmstepd runs in a process of its own leaves its descriptors.
#include "fd_handover.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

namespace dp::plugin {
namespace {

// In a process with descriptors of its own, as slurmstepd with contain_spank does. That process shares
// memory, too (CLONE_VM), which the sanitizers do not survive; the cluster's tests have it.
void contained(const std::function<void()>& body) {
    const pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0);
}

void open_all(NodeSetup& node) {
    int control[2];
    int ready[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, control) != 0 || pipe(ready) != 0) _exit(1);
    node.control_launcher.reset(control[0]);
    node.control_daemon.reset(control[1]);
    node.ready_read.reset(ready[0]);
    node.ready_write.reset(ready[1]);
    node.plan_file.reset(open("/dev/null", O_RDWR));
    node.daemon_binary.reset(open("/dev/zero", O_RDONLY));
    node.ranks_listener.reset(open("/dev/null", O_RDONLY));
    node.master.socket.reset(open("/dev/null", O_RDONLY));
}

TEST(FdHandover, KeepsNothingWhereUserInitRunsInSlurmstepdItself) {
    FdHandover handover;
    NodeSetup node;
    ASSERT_TRUE(handover.build());
    open_all(node);
    const int plan_file = node.plan_file.get();
    ASSERT_TRUE(handover.put(node));
    EXPECT_EQ(node.plan_file.get(), plan_file);
    ASSERT_TRUE(handover.lend(node));
    handover.take_back(node);
    ASSERT_TRUE(handover.hand_over(node));
    EXPECT_EQ(node.plan_file.get(), plan_file);
    EXPECT_GE(fcntl(plan_file, F_GETFD), 0);
}

TEST(FdHandover, KeepsWhatAContainedUserInitHasOpened) {
    FdHandover handover;
    NodeSetup node;
    ASSERT_TRUE(handover.build());
    contained([&] {
        open_all(node);
        // Their numbers mean nothing to slurmstepd, whose memory this is.
        if (!handover.put(node) || node.plan_file || node.control_launcher || node.daemon_binary) _exit(1);
    });

    // Each contained call-back borrows the control channel anew.
    for (char letter : {'a', 'b'})
        contained([&] {
            if (!handover.lend(node) || write(node.control_launcher.get(), &letter, 1) != 1) _exit(1);
            handover.take_back(node);
            if (node.control_launcher) _exit(1);
        });

    ASSERT_TRUE(handover.lend(node));
    ASSERT_TRUE(handover.hand_over(node));
    EXPECT_TRUE(node.plan_file);
    EXPECT_TRUE(node.daemon_binary);
    EXPECT_TRUE(node.ranks_listener);
    EXPECT_TRUE(node.master.socket);
    EXPECT_FALSE(node.broker.socket) << "there was none";
    EXPECT_FALSE(node.coordinator.socket) << "there was none";
    char got = 0;
    EXPECT_EQ(read(node.control_daemon.get(), &got, 1), 1);
    EXPECT_EQ(got, 'a');
    EXPECT_EQ(read(node.control_daemon.get(), &got, 1), 1);
    EXPECT_EQ(got, 'b');
    EXPECT_TRUE(fcntl(node.plan_file.get(), F_GETFD) & FD_CLOEXEC);
}

TEST(FdHandover, HoldsNothingOfTheDaemonsOnceItIsHandedOver) {
    FdHandover handover;
    NodeSetup node;
    ASSERT_TRUE(handover.build());
    contained([&] {
        open_all(node);
        if (!handover.put(node)) _exit(1);
    });
    ASSERT_TRUE(handover.hand_over(node));
    ASSERT_TRUE(handover.lend(node));
    node.ready_write.reset();
    char got = 0;
    EXPECT_EQ(read(node.ready_read.get(), &got, 1), 0) << "the daemon's end is open somewhere";
    NodeSetup second;
    EXPECT_FALSE(handover.hand_over(second));
}

TEST(FdHandover, ClosesTheLaunchersEndWhenItGoes) {
    NodeSetup node;
    {
        FdHandover handover;
        ASSERT_TRUE(handover.build());
        contained([&] {
            open_all(node);
            if (!handover.put(node)) _exit(1);
        });
        ASSERT_TRUE(handover.hand_over(node));
    }
    char got = 0;
    EXPECT_EQ(read(node.control_daemon.get(), &got, 1), 0) << "the daemon would not see slurmstepd's death";
}

TEST(FdHandover, SaysSoWhereAProcessHasNoRoomForDescriptors) {
    FdHandover handover;
    NodeSetup node;
    ASSERT_TRUE(handover.build());
    contained([&] {
        open_all(node);
        if (!handover.put(node)) _exit(1);
    });
    std::vector<Fd> taken;
    for (Fd fd(dup(0)); fd; fd = Fd(dup(0))) taken.push_back(std::move(fd));
    auto lent = handover.lend(node);
    taken.clear();
    ASSERT_FALSE(lent);
    EXPECT_NE(lent.error().message.find("Too many open files"), std::string::npos) << lent.error().message;
}

}  // namespace
}  // namespace dp::plugin
