// SPDX-License-Identifier: Apache-2.0
//
// A keeper and its rank's lives, with the test in the place of the daemon.
#include "common/keeper.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>

#include "base/unix_socket.hpp"
#include "common/control.hpp"
#include "common/socket_names.hpp"

namespace dp {
namespace {

NodePlan plan_of(uint32_t generation) {
    return {"10.0.0.1", static_cast<uint16_t>(29500 + generation), 29600, "10.0.0.2", "", generation};
}

class KeeperTest : public testing::Test {
 protected:
    using Life = std::function<int(const NodePlan&)>;

    // Starts a keeper whose lives run this and exit with what it returns.
    void start(const Life& life, const NodePlan& first = plan_of(0)) {
        fflush(nullptr);
        keeper_ = fork();
        if (keeper_ != 0) return accept_keeper();
        listener_.reset();
        const auto plan = keep("@" + name_, 3, first);
        _exit(plan ? life(*plan) : 99);
    }
    std::string hear() {
        std::array<char, kMaxControl> packet;
        pollfd entry{daemon_.get(), POLLIN, 0};
        if (poll(&entry, 1, 10000) != 1) return "silence";
        const ssize_t size = recv(daemon_.get(), packet.data(), packet.size(), 0);
        return size > 0 ? std::string(packet.data(), static_cast<size_t>(size)) : "hang-up";
    }
    // "task 3 PID" → the pid.
    pid_t hear_life() {
        const auto event = read_control(hear());
        EXPECT_TRUE(event && event->kind == ControlEvent::Kind::task && event->local_rank == 3);
        return event ? event->value : 0;
    }
    void say(const std::string& packet) const {
        EXPECT_EQ(send(daemon_.get(), packet.data(), packet.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(packet.size()));
    }
    int wait_for_keeper() {
        int status = -1;
        EXPECT_EQ(waitpid(keeper_, &status, 0), keeper_);
        keeper_ = 0;
        return status;
    }
    void TearDown() override {
        if (keeper_ > 0) {
            kill(keeper_, SIGKILL);
            waitpid(keeper_, nullptr, 0);
        }
    }

    std::string name_ = "slurm-dp/test.0/0/" + std::to_string(getpid());
    Fd listener_ = AbstractAddress::of(keepers_socket_name(name_))->listen(8, SOCK_SEQPACKET);
    Fd daemon_;
    pid_t keeper_ = 0;

 private:
    void accept_keeper() {
        pollfd entry{listener_.get(), POLLIN, 0};
        ASSERT_EQ(poll(&entry, 1, 10000), 1);
        daemon_.reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        EXPECT_EQ(hear(), "keep 3");
    }
};

TEST_F(KeeperTest, BeginsALifeForEachPlanAndEndsAsTheLastOneDid) {
    start([](const NodePlan& plan) {
        if (plan.generation == 0) return 7;
        return plan.master_port == 29501 && plan.node_addr == "10.0.0.2" ? 5 : 98;
    });
    EXPECT_GT(hear_life(), 0);
    EXPECT_EQ(hear(), "exit 3 " + std::to_string(7 << 8));
    say(write_plan(plan_of(1)));
    EXPECT_GT(hear_life(), 0);
    EXPECT_EQ(hear(), "exit 3 " + std::to_string(5 << 8));
    say(std::string(kNoOtherLife));
    EXPECT_EQ(wait_for_keeper(), 5 << 8);
}

TEST_F(KeeperTest, DiesOfItsRanksSignal) {
    for (const int signal : {SIGKILL, SIGTERM, SIGABRT}) {
        start([signal](const NodePlan&) { return raise(signal); });
        hear_life();
        EXPECT_EQ(std::stoi(hear().substr(7)) & 0x7f, signal);
        say(std::string(kNoOtherLife));
        const int status = wait_for_keeper();
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << signal;
        EXPECT_FALSE(WCOREDUMP(status));
    }
}

TEST_F(KeeperTest, WhatIsToldDuringALifeHoldsAtItsEnd) {
    start([](const NodePlan&) { return pause(); });
    const pid_t rank = hear_life();
    say(std::string(kNoOtherLife));
    kill(rank, SIGKILL);
    EXPECT_EQ(wait_for_keeper(), SIGKILL);
}

// A child in a session of its own whose parent has gone.
TEST_F(KeeperTest, TakesInTheOrphansOfItsRank) {
    int orphan[2];
    ASSERT_EQ(pipe(orphan), 0);
    start([&](const NodePlan&) {
        if (fork() == 0) {
            setsid();
            const pid_t pid = fork() == 0 ? getpid() : 0;
            if (pid == 0) _exit(0);
            [[maybe_unused]] const auto ignored = write(orphan[1], &pid, sizeof pid);
            pause();
        }
        return pause();
    });
    hear_life();
    pid_t pid = 0;
    ASSERT_EQ(read(orphan[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    const auto parent = [&] {
        int number = 0;
        FILE* stat = fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
        EXPECT_EQ(fscanf(stat, "%*d (%*[^)]) %*c %d", &number), 1);
        fclose(stat);
        return number;
    };
    for (int i = 0; i < 500 && parent() != keeper_; ++i) usleep(10000);
    EXPECT_EQ(parent(), keeper_);
    kill(pid, SIGKILL);
    close(orphan[0]);
    close(orphan[1]);
}

// Slurm's ends of the ranks' pipes close with exec, and a keeper never does that.
TEST_F(KeeperTest, HoldsNoPipeOfTheLaunchers) {
    int input[2];
    ASSERT_EQ(pipe2(input, O_CLOEXEC), 0);
    start([&](const NodePlan&) {
        close(input[1]);  // as exec would
        char byte = 0;
        return read(input[0], &byte, 1) == 0 ? 7 : 8;
    });
    hear_life();
    close(input[1]);
    EXPECT_EQ(hear(), "exit 3 " + std::to_string(7 << 8));
    close(input[0]);
}

TEST_F(KeeperTest, BetweenTwoLivesOnlyTheEndIsRemembered) {
    start([](const NodePlan& plan) { return plan.generation == 0 ? 1 : pause(); });
    hear_life();
    EXPECT_EQ(hear(), "exit 3 256");
    kill(keeper_, SIGUSR1);
    kill(keeper_, SIGTERM);
    EXPECT_EQ(hear(), "told 3 15");
    say(write_plan(plan_of(1)));
    hear_life();
    EXPECT_EQ(hear(), "exit 3 " + std::to_string(SIGTERM));
}

// The rank may begin on another node then.
TEST_F(KeeperTest, KillsItsRankWhereTheDaemonIsGone) {
    start([](const NodePlan&) {
        signal(SIGTERM, SIG_IGN);
        return pause();
    });
    hear_life();
    daemon_.reset();
    EXPECT_EQ(wait_for_keeper(), SIGKILL);
}

TEST_F(KeeperTest, OfASpareBeginsALifeWhenThePlanHasARankForIt) {
    NodePlan plan = plan_of(0);
    plan.place = {{}, 0, 1, 4};
    start([](const NodePlan& given) { return given.place->ranks.at(3) == 7 ? 5 : 1; }, plan);
    plan.generation = 1;
    say(write_plan(plan));
    plan.generation = 2;
    plan.place->ranks = {4, 5, 6, 7};
    say(write_plan(plan));
    hear_life();
    EXPECT_EQ(hear(), "exit 3 " + std::to_string(5 << 8));
    say("end");
    EXPECT_EQ(wait_for_keeper(), 5 << 8);
}

TEST_F(KeeperTest, OfASpareThatIsNotNeededEndsWell) {
    NodePlan plan = plan_of(0);
    plan.place = {{}, 0, 1, 4};
    start([](const NodePlan&) { return 1; }, plan);
    say("end");
    EXPECT_EQ(wait_for_keeper(), 0);
}

TEST_F(KeeperTest, PassesSignalsOnAndSaysWhichAskForTheEnd) {
    start([](const NodePlan&) {
        sigset_t both;
        sigemptyset(&both);
        sigaddset(&both, SIGUSR1);
        sigaddset(&both, SIGTERM);
        sigprocmask(SIG_BLOCK, &both, nullptr);
        raise(SIGSTOP);  // until the test has sent them
        int code = 0;
        for (int got = 0; got < 2; ++got) {
            int signal = 0;
            sigwait(&both, &signal);
            code += signal;
        }
        return code;
    });
    const pid_t rank = hear_life();
    char state = 0;
    for (int i = 0; i < 500 && state != 'T'; ++i) {
        usleep(10000);
        FILE* stat = fopen(("/proc/" + std::to_string(rank) + "/stat").c_str(), "r");
        EXPECT_EQ(fscanf(stat, "%*d (%*[^)]) %c", &state), 1);
        fclose(stat);
    }
    kill(keeper_, SIGUSR1);
    kill(keeper_, SIGTERM);
    EXPECT_EQ(hear(), "told 3 15");
    kill(keeper_, SIGCONT);
    EXPECT_EQ(hear(), "exit 3 " + std::to_string((SIGUSR1 + SIGTERM) << 8));
    say(std::string(kNoOtherLife));
    wait_for_keeper();
}

TEST_F(KeeperTest, TakesItsRankAlong) {
    start([](const NodePlan&) { return pause(); });
    const pid_t rank = hear_life();
    // Without a parent it becomes ours, so that we see its end.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    kill(keeper_, SIGKILL);
    EXPECT_EQ(wait_for_keeper(), SIGKILL);
    int status = 0;
    EXPECT_EQ(waitpid(rank, &status, 0), rank);
    EXPECT_EQ(status, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(KeeperTest, WithoutADaemonThereIsNoLife) {
    const auto plan = keep("@" + name_ + "-nobody", 3, plan_of(0));
    ASSERT_FALSE(plan);
    EXPECT_NE(plan.error().message.find("the rank's keeper cannot reach the rendezvous daemon"),
              std::string::npos);
}

TEST(Control, KeepersPacketsSurvive) {
    using Kind = ControlEvent::Kind;
    for (const ControlEvent& event : {ControlEvent{Kind::keep, 3}, ControlEvent{Kind::told, 3, SIGTERM}}) {
        const auto back = read_control(write_control(event));
        ASSERT_TRUE(back);
        EXPECT_EQ(*back, event);
    }
    for (const char* packet : {"keep", "keep x", "keep 1 2", "told 1", "told x 15"})
        EXPECT_FALSE(read_control(packet));
}

}  // namespace
}  // namespace dp
