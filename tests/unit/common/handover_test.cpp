// SPDX-License-Identifier: Apache-2.0
//
// What launcher and daemon hand to each other: configuration, control packets, the plan file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <thread>

#include "common/control.hpp"
#include "common/daemon_config.hpp"
#include "common/fields.hpp"
#include "common/plan_file.hpp"

namespace dp {
namespace {

DaemonConfig example() {
    DaemonConfig c;
    c.job_id = 12;
    c.step_id = 3;
    c.world_size = 8;
    c.nodes = 2;
    c.node_rank = 1;
    c.host = "gpu02";
    c.ranks = {4, 5, 6, 7};
    c.tasks = 4;
    c.tiles = {"0-3", "", "8-10,12", "13"};
    c.tiles_conf = "/etc/slurm/tiles of gpus.conf";
    c.node_list = "gpu[01-02]";
    c.settings = with_defaults({});
    c.secret = std::string(64, 'a');
    c.broker_host = "gpu01";
    c.broker_addresses = {"10.0.0.1", "fd00::1"};
    c.candidates = {20001, 30000};
    c.node_addr = "10.0.0.2";
    return c;
}

TEST(Secret, IsNewEachTime) {
    const auto one = make_secret();
    const auto other = make_secret();
    ASSERT_TRUE(one && other);
    EXPECT_EQ(one->size(), 64u);
    EXPECT_EQ(one->find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_NE(*one, *other);
}

TEST(DaemonConfig, SurvivesTheHandover) {
    auto back = read_config(write_config(example()));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, example());
}

TEST(DaemonConfig, EveryOptionReachesTheDaemon) {
    const std::map<std::string_view, const char*> values = {
        {"auto|N", "4099"},           {"N", "3"},    {"SECONDS", "7"}, {"PERCENT", "35"},
        {"NAME|CIDR", "10.1.0.0/16"}, {"CODES", "7"}};
    for (const OptionSpec& spec : option_specs()) {
        DaemonConfig c = example();
        const std::string_view argument = spec.argument ? spec.argument : "";
        const auto value = values.find(argument);
        // Of words the last, which is nobody's default.
        const std::string given =
            value != values.end() ? value->second : std::string(argument.substr(argument.rfind('|') + 1));
        ASSERT_TRUE(spec.set(c.settings, std::string_view(spec.name) == "dp-tiles" ? "4" : given))
            << spec.name;
        EXPECT_NE(c, example()) << spec.name;
        const auto back = read_config(write_config(c));
        ASSERT_TRUE(back) << spec.name << ": " << back.error().message;
        EXPECT_EQ(*back, c) << spec.name;
    }
}

TEST(DaemonConfig, TilesMayBeUnknownAndAreOneTextATask) {
    DaemonConfig c = example();
    c.tiles.clear();
    EXPECT_EQ(read_config(write_config(c))->tiles, c.tiles);
    std::string text = write_config(c);
    text.erase(text.find("tiles=\n"), 7);
    EXPECT_EQ(read_config(text)->tiles, c.tiles);
    c.tiles = {"", "", "", ""};
    EXPECT_EQ(read_config(write_config(c))->tiles, c.tiles);
    c.tiles = {"0", "1"};
    auto back = read_config(write_config(c));
    ASSERT_FALSE(back);
    EXPECT_NE(back.error().message.find("tiles of 2 tasks, and the node has 4"), std::string::npos);
}

TEST(DaemonConfig, AnotherVersionIsRefusedByName) {
    std::string text = write_config(example());
    const std::string now = "version=" + std::to_string(kDaemonConfigVersion);
    text.replace(text.find(now), now.size(), "version=99");
    auto back = read_config(text);
    ASSERT_FALSE(back);
    EXPECT_NE(back.error().message.find("different versions"), std::string::npos);
}

TEST(DaemonConfig, GarbageIsRefused) {
    EXPECT_FALSE(read_config(""));
    EXPECT_FALSE(read_config("no equals sign"));
    for (const char* name :
         {"ranks=4", "world_size=8", "candidates=20001", "SLURM_DP_TIMEOUT=300", "broker=0"}) {
        std::string text = write_config(example());
        size_t at = text.find(name);
        ASSERT_NE(at, std::string::npos);
        text.insert(at + std::string(name).size(), "x");
        EXPECT_FALSE(read_config(text)) << name;
    }
}

TEST(Fields, AreFoundByName) {
    const std::string text = field_line("a", "1") + field_line("addr", "fd00::1=x") +
                             field_line("empty", "") + field_line("z", "two\nlines");
    EXPECT_EQ(field_of(text, "a"), "1");
    EXPECT_EQ(field_of(text, "addr"), "fd00::1=x");
    EXPECT_EQ(field_of(text, "z"), "two?lines");
    for (const char* missing : {"", "add", "addre", "1", "empty", "lines", "Z"})
        EXPECT_EQ(field_of(text, missing), "") << missing;
    EXPECT_EQ(field_of("a=1", "a"), "1") << "without a line's end";
    EXPECT_EQ(field_of("", "a"), "");
}

TEST(Control, PacketsReadBack) {
    using namespace std::string_literals;
    for (const ControlEvent& event :
         {ControlEvent{ControlEvent::Kind::task, 3, 4711}, ControlEvent{ControlEvent::Kind::exit, 0, 9},
          ControlEvent{ControlEvent::Kind::tiles, 2, 0, "4-5,7"},
          ControlEvent{ControlEvent::Kind::environment, 2, 1, "\0RANK=2\0A=b c"s},
          ControlEvent{ControlEvent::Kind::end}})
        EXPECT_EQ(*read_control(write_control(event)), event);
    EXPECT_FALSE(read_control(std::string_view("environment 2\0RANK=2", 20)));
    EXPECT_FALSE(read_control("environment 2 1"));
    for (const char* packet : {"", "task", "task 1", "task x 1", "exit 1 2 3", "END", "task -1 5", "tiles 1",
                               "tiles 1 ", "tiles x 1"})
        EXPECT_FALSE(read_control(packet)) << packet;
}

TEST(Control, TheLauncherLearnsTheDaemonsPidFromTheKernel) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    Fd launcher(pair[0]);
    Fd daemon(pair[1]);
    int on = 1;
    setsockopt(launcher.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    EXPECT_EQ(daemon_pid(launcher.get()), std::nullopt);
    pid_t child = fork();
    if (child == 0) {
        announce_daemon(daemon.get());
        pause();
        _exit(0);
    }
    std::optional<pid_t> pid;
    for (int i = 0; i < 200 && !pid; ++i) {
        pid = daemon_pid(launcher.get());
        usleep(5000);
    }
    EXPECT_EQ(pid, child);
    // It does not leave by itself: it is killed at the deadline.
    daemon.reset();  // our own copy of the daemon's end
    const Fd process = open_daemon(launcher.get(), child);
    ASSERT_TRUE(process);
    EXPECT_EQ(wait_until_gone(process, std::chrono::milliseconds(20)), Ended::killed);
    waitpid(child, nullptr, 0);
    EXPECT_EQ(wait_until_gone(process, std::chrono::milliseconds(20)), Ended::gone);
}

TEST(Control, ADaemonThatHasLeftIsStillKnown) {
    for (const bool read_all : {true, false}) {
        int pair[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        Fd launcher(pair[0]), daemon(pair[1]);
        int on = 1;
        setsockopt(launcher.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
        if (!read_all) send_control(launcher.get(), {ControlEvent::Kind::exit, 1, 256});
        announce_daemon(daemon.get());
        daemon.reset();
        EXPECT_EQ(daemon_pid(launcher.get()), getpid()) << (read_all ? "it read all" : "it did not read all");
        EXPECT_EQ(daemon_pid(launcher.get()), std::nullopt);
    }
}

TEST(Control, TheLauncherHearsOfRanksThatAreLeft) {
    for (const bool left : {false, true}) {
        int pair[2];
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        Fd launcher(pair[0]), daemon(pair[1]);
        send_control(launcher.get(), {ControlEvent::Kind::end});  // which the daemon does not read
        announce_daemon(daemon.get());
        if (left) announce_ranks_left(daemon.get());
        daemon.reset();
        EXPECT_EQ(ranks_are_left(launcher.get()), left);
        EXPECT_FALSE(ranks_are_left(launcher.get()));
    }
}

TEST(Control, AProcessThatHoldsNoEndOfTheChannelIsNotTheDaemon) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    Fd launcher(pair[0]);
    Fd(pair[1]).reset();
    EXPECT_FALSE(open_daemon(launcher.get(), getpid()));  // a live pid, as after its reuse
}

struct PlanFile {
    Fd memory{memfd_create("plan", MFD_CLOEXEC)};
    Fd read_end, write_end;
    PlanFile() {
        int ends[2];
        EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
        read_end.reset(ends[0]);
        write_end.reset(ends[1]);
    }
};

TEST(PlanFile, AnyNumberOfTasksReadThePlan) {
    PlanFile plan_file;
    std::vector<std::thread> tasks;
    std::vector<Try<NodePlan>> plans(8, fail("unread"));
    for (auto& plan : plans)
        tasks.emplace_back([&] {
            plan = wait_for_plan(plan_file.memory.get(), plan_file.read_end.get(), std::chrono::seconds(10));
        });
    ASSERT_TRUE(publish_plan(plan_file.memory.get(), plan_file.write_end.get(),
                             {"10.0.0.1", 29000, 29001, "10.0.0.2", "a\nb\n"}));
    for (auto& task : tasks) task.join();
    for (const auto& plan : plans) {
        ASSERT_TRUE(plan) << plan.error().message;
        EXPECT_EQ(plan->master_addr, "10.0.0.1");
        EXPECT_EQ(plan->master_port, 29000);
        EXPECT_EQ(plan->coordinator_port, 29001);
        EXPECT_EQ(plan->table, "a\nb\n");
    }
}

TEST(PlanFile, TheReasonForNoPlanArrives) {
    PlanFile plan_file;
    ASSERT_TRUE(publish_failure(plan_file.memory.get(), plan_file.write_end.get(), "no network"));
    auto plan = wait_for_plan(plan_file.memory.get(), plan_file.read_end.get(), std::chrono::seconds(10));
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().message, "no network");
}

TEST(PlanFile, TheReasonMayBeSaidElsewhere) {
    PlanFile plan_file;
    ASSERT_TRUE(publish_failure(plan_file.memory.get(), plan_file.write_end.get(), ""));
    auto plan = wait_for_plan(plan_file.memory.get(), plan_file.read_end.get(), std::chrono::seconds(10));
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().message, "");
}

TEST(PlanFile, NobodyWhoWaitsIsNoError) {
    signal(SIGPIPE, SIG_IGN);
    PlanFile plan_file;
    plan_file.read_end.reset();
    EXPECT_TRUE(publish_failure(plan_file.memory.get(), plan_file.write_end.get(), "no network"));
    signal(SIGPIPE, SIG_DFL);
}

TEST(PlanFile, ADaemonThatDiesIsNoticedAtOnce) {
    PlanFile plan_file;
    plan_file.write_end.reset();
    auto plan = wait_for_plan(plan_file.memory.get(), plan_file.read_end.get(), std::chrono::seconds(10));
    ASSERT_FALSE(plan);
    EXPECT_NE(plan.error().message.find("died"), std::string::npos);
}

TEST(PlanFile, WaitingHasADeadline) {
    PlanFile plan_file;
    auto plan =
        wait_for_plan(plan_file.memory.get(), plan_file.read_end.get(), std::chrono::milliseconds(30));
    ASSERT_FALSE(plan);
    EXPECT_NE(plan.error().message.find("no plan within"), std::string::npos);
}

}  // namespace
}  // namespace dp
