// SPDX-License-Identifier: Apache-2.0
//
// A step in which ranks, nodes and daemons die: who is named, who is told and when, and who goes on.
#include <gtest/gtest.h>

#include <csignal>
#include <functional>

#include "simulation.hpp"

namespace dp {
namespace {

constexpr int kKilled = SIGKILL;  // as a wait status
constexpr int kTermed = SIGTERM;
constexpr int kCode3 = 3 << 8;

TEST(Death, IsNamedOnceAndEndsEverybodySoon) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.exit(3, kKilled);
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.log[0], "rank 3 on gpu1 was killed by signal 9 (SIGKILL); ending the step");
    EXPECT_EQ(s.ranks[0].aborted, "rank 3 on gpu1 was killed by signal 9 (SIGKILL)");
    EXPECT_EQ(s.ranks[0].dead, std::vector<uint32_t>{3});
    // What follows from the first death is no cause, and calls fail with the first.
    s.exit(2, kTermed);
    s.exit(0, kCode3);
    EXPECT_EQ(s.log.size(), 1u);
    s.arrive(1, 7);
    EXPECT_NE(s.ranks[1].replies[7].error().find("rank 3 on gpu1"), std::string::npos);
    const Time died = s.now;
    s.pass(Time(3000));
    for (const auto& sent : s.signals) {
        ASSERT_EQ(sent.size(), 2u);
        EXPECT_EQ(sent[1].second, SIGKILL);
        EXPECT_LE(sent[1].first - died, Time(1300));
    }
}

TEST(Death, SaysHowFarTheTrainingWas) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    for (uint64_t step : {1199, 1200}) s.progress(3, step);
    s.exit(3, kKilled);
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.log[0], "rank 3 on gpu1 was killed by signal 9 (SIGKILL) at step 1200; ending the step");
}

Settings with_nccl_debug() {
    Settings more;
    more.nccl_debug = NcclDebug{"on"};
    return more;
}

TEST(Death, IsFollowedByTheLastWarningOfItsNccl) {
    Simulation s(2, 2, Time(10000), false, FailureAction::abort, with_nccl_debug());
    s.join_all();
    s.hello_all();
    s.exit(3, kCode3);
    ASSERT_EQ(s.log, std::vector<std::string>{"rank 3 on gpu1 exited with code 3; ending the step"});
    ASSERT_EQ(s.nccl_to_read.size(), 1u);
    // Those who are ended for it are not asked, and the daemon stays until it knows.
    s.exit(2, kKilled);
    s.end(1);
    EXPECT_EQ(s.nccl_to_read.size(), 1u);
    EXPECT_FALSE(s.nodes[1]->finished());
    s.warn({"(14:02:11, /nccl.3): NET/IB : status=12\n"});
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_EQ(s.log[1], "rank 3 on gpu1: last NCCL warning (14:02:11, /nccl.3): NET/IB : status=12?");
    s.exit(0, kKilled);
    s.exit(1, kKilled);
    s.end(0);
    EXPECT_TRUE(s.nodes[1]->finished());
}

wire::NcclWarning warning_of(uint32_t rank, uint32_t generation, const std::string& text) {
    wire::NcclWarning warning;
    warning.set_rank(rank);
    warning.set_generation(generation);
    warning.set_text(text);
    return warning;
}

TEST(NcclWarnings, AreThoseOfRanksThatALineHasNamed) {
    NcclWarnings warnings;
    warnings.note(warning_of(3, 0, "early"));
    warnings.note(warning_of(2, 0, "never named"));
    EXPECT_TRUE(warnings.take().empty());
    warnings.name({{{0, 3}, "rank 3 on gpu1"}, {{0, 1}, "rank 1 on gpu0"}});
    warnings.note(warning_of(1, 0, "late"));
    EXPECT_EQ(warnings.take(), (std::vector<std::string>{"rank 1 on gpu0: last NCCL warning late",
                                                         "rank 3 on gpu1: last NCCL warning early"}));
    // Of another life.
    warnings.name({{{1, 1}, "rank 1 on gpu2"}});
    warnings.note(warning_of(1, 0, "again"));
    EXPECT_TRUE(warnings.take().empty());
    warnings.name({{{3, 2}, "rank 2 on gpu2"}});
    EXPECT_TRUE(warnings.take().empty());
}

TEST(NcclWarnings, AreFew) {
    NcclWarnings warnings;
    NcclWarnings::Ranks all;
    for (uint32_t rank = 0; rank < 64; ++rank) all[{0, rank}] = "rank " + std::to_string(rank);
    warnings.name(all);
    size_t printed = 0;
    for (uint32_t rank = 0; rank < 64; ++rank) {
        warnings.note(warning_of(rank, 0, "why"));
        printed += warnings.take().size();
    }
    EXPECT_EQ(printed, kMostNcclWarnings);
    warnings.name({{{0, 70}, "rank 70"}});
    EXPECT_TRUE(warnings.take().empty());
}

// Reading takes longer than a restart.
TEST(Death, IsFollowedByItsWarningAlsoInTheNextLife) {
    Simulation s(2, 2, Time(10000), false, FailureAction::restart, with_nccl_debug());
    s.join_all();
    s.start_all();
    s.hello_all();
    s.exit(3, kCode3);
    ASSERT_EQ(s.nccl_to_read.size(), 1u);
    for (const uint32_t rank : {0u, 1u, 2u}) s.exit(rank, kKilled);
    for (const uint32_t node : {0u, 1u}) s.clear(node);
    ASSERT_EQ(s.nodes[1]->generation(), 1u);
    s.log.clear();
    s.start_all();
    s.exit(2, kCode3);
    s.warn({"of 3", "of 2"});
    // Each after the line that names its rank.
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_TRUE(s.log[0].starts_with("rank 3 on gpu1 exited with code 3; generation 1 began ")) << s.log[0];
    EXPECT_EQ(s.log[1], "rank 3 on gpu1: last NCCL warning of 3");
    for (const uint32_t rank : {0u, 1u, 3u}) s.exit(rank, kKilled);
    for (const uint32_t node : {0u, 1u}) s.clear(node);
    s.start_all();
    ASSERT_EQ(s.log.size(), 4u);
    EXPECT_EQ(s.log[3], "rank 2 on gpu1: last NCCL warning of 2");
}

// While its ranks still are where they hang.
TEST(Hang, IsRecordedByEveryNodeWhateverFollows) {
    for (const auto action : {FailureAction::abort, FailureAction::report, FailureAction::restart})
        for (const bool is_recorded : {true, false}) {
            Settings more;
            more.hang_timeout_seconds = 60;
            if (is_recorded) more.record = RecordDirectory{"/records"};
            Simulation s(2, 2, Time(10000), false, action, more);
            s.join_all();
            s.start_all();
            s.hello_all();
            for (const uint32_t rank : {0u, 1u, 2u}) s.still(rank, "all_reduce", true);
            EXPECT_TRUE(s.hangs.empty());
            s.still(3, "load_batch", false);
            ASSERT_EQ(s.hangs.size(), is_recorded ? 2u : 0u);
            for (const auto& [node, hang] : s.hangs) {
                EXPECT_TRUE(hang.reason().ends_with(
                    "rank 3 on gpu1 is in load_batch; ranks 0-2 on gpu[0-1] wait in all_reduce"))
                    << hang.reason();
                ASSERT_EQ(hang.culprits_size(), 1);
                EXPECT_EQ(hang.culprits(0), 3u);
            }
        }
}

// srun -e job.%N: nobody who reads that file sees what rank 0's node says.
TEST(Death, IsAlsoSaidWhereANodeHasAFileOfItsOwn) {
    for (bool own_file : {false, true}) {
        DaemonConfig config;
        config.node_rank = 1;
        config.ranks = {2, 3};
        config.tasks = 2;
        config.world_size = 4;
        config.settings = with_defaults({});
        Node node(config, {{}, own_file}, Time(0));
        node.on_joined("10.0.0.2", Time(0));
        wire::ToNode message;
        message.mutable_plan();
        node.on_broker(message, Time(0));
        message.mutable_abort()->set_reason("rank 0 on gpu0 exited with code 3");
        const NodeActions actions = node.on_broker(message, Time(0));
        EXPECT_EQ(actions.log,
                  own_file ? std::vector<std::string>{"rank 0 on gpu0 exited with code 3; ending the step"}
                           : std::vector<std::string>());
    }
}

TEST(Death, AfterAnExitCodeTheOthersMayCleanUp) {
    Simulation s(1, 2);
    s.join_all();
    s.exit(0, kCode3);
    EXPECT_TRUE(s.logged("rank 0 on gpu0 exited with code 3; ending the step"));
    s.pass(Time(29000));
    ASSERT_EQ(s.signals[0].size(), 1u);
    EXPECT_EQ(s.signals[0][0].second, SIGTERM);
    s.pass(Time(2000));
    EXPECT_EQ(s.signals[0].size(), 2u);
}

TEST(Death, AStepThatWasToldToEndHasNoCulprit) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    for (uint32_t rank = 0; rank < 4; ++rank) {
        s.exit(rank, kTermed);
        s.pass(Time(50));
    }
    s.pass(Time(1000));
    EXPECT_TRUE(s.log.empty());
}

// Its SIGTERMs reach the nodes some milliseconds apart, and who waits for the first dead is quick to leave.
TEST(Death, AStepThatWasToldToEndHasNoCulpritWhereOthersWaitForTheFirst) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.exit(2, kTermed);
    EXPECT_FALSE(s.ranks[0].replies.contains(1));
    s.pass(Time(20));
    s.exit(1, kCode3);
    s.pass(Time(20));
    s.exit(0, kTermed);
    s.exit(3, kTermed);
    s.pass(Time(1000));
    EXPECT_TRUE(s.log.empty());
}

TEST(Death, ByAPoliteSignalAloneIsOne) {
    Simulation s(2, 2);
    s.join_all();
    s.exit(2, kTermed);
    EXPECT_TRUE(s.log.empty());
    s.pass(Time(400));
    EXPECT_TRUE(s.logged("rank 2 on gpu1 was killed by signal 15 (SIGTERM); ending the step"));
}

// Its collectives break off at once, and whoever uses them leaves with an exit code or abort().
TEST(Death, ThatIsHeldBackIsNamedBeforeThoseThatFollowFromIt) {
    for (const int follower : {4 << 8, int{SIGABRT}}) {
        Simulation killed(2, 2);
        killed.join_all();
        killed.hello_all();
        killed.exit(0, kTermed);
        killed.pass(Time(50));
        killed.exit(3, follower);
        EXPECT_TRUE(killed.log.empty());
        killed.pass(Time(300));
        ASSERT_EQ(killed.log.size(), 1u);
        EXPECT_TRUE(killed.logged("rank 0 on gpu0 was killed by signal 15 (SIGTERM); ending the step"));
        killed.pass(Time(1000));
        EXPECT_EQ(killed.log.size(), 1u);

        Simulation lost(2, 2);
        lost.join_all();
        lost.hello_all();
        lost.cut(1);
        lost.pass(Time(20));
        lost.exit(0, follower);
        EXPECT_TRUE(lost.logged("node gpu1 (ranks 2-3) is lost: its connection closed; ending the step"));
    }
}

// SIGKILL of a whole step reaches its nodes some milliseconds apart.
TEST(Death, BySigkillBesideALostConnectionMakesNoLostNode) {
    Simulation s(2, 1);
    s.join_all();
    s.cut(1);
    s.exit(0, kKilled);
    EXPECT_FALSE(s.logged("is lost"));
}

// What no daemon can end, Slurm is asked to.
TEST(RanksLeftBehind, AreThoseOfALostNodeOrOfAKilledLauncherInAStepThatEnds) {
    struct {
        const char* what;
        std::function<void(Simulation&)> happens;
        bool left;
    } const cases[] = {
        {"nothing", [](Simulation&) {}, false},
        {"a rank dies", [](Simulation& s) { s.exit(3, kKilled); }, false},
        {"a node is lost", [](Simulation& s) { s.cut(1); }, true},
        {"a launcher is killed", [](Simulation& s) { s.lose_launcher(1); }, true},
        {"a rank dies, then a node is lost", [](Simulation& s) { s.exit(0, kKilled), s.cut(1); }, true},
    };
    for (const auto& c : cases)
        for (const bool report : {false, true}) {
            Simulation s(2, 2, Time(10000), false, report ? FailureAction::report : FailureAction::abort);
            s.join_all();
            s.hello_all();
            c.happens(s);
            s.pass(Time(1000));
            EXPECT_EQ(s.broker->leaves_ranks_behind(), c.left && !report) << c.what;
            for (const auto& node : s.nodes) EXPECT_FALSE(node->leaves_ranks_behind()) << c.what;
        }
}

// It has not heard that the step ends, and its silence is too short to be lost when rank 0's node has ended.
TEST(RanksLeftBehind, AreThoseOfANodeThatStandsStillWhileTheStepEnds) {
    for (const bool still : {false, true}) {
        Simulation s(3, 1);
        s.join_all();
        s.hello_all();
        if (still) s.frozen = {2};
        s.pass(Time(1000));
        s.exit(1, kKilled);
        s.end(1);
        s.exit(0, SIGTERM);
        s.end(0);
        EXPECT_FALSE(s.broker->finished()) << "the others may still be ending";
        if (!still) {
            s.exit(2, SIGTERM);
            s.end(2);
            EXPECT_TRUE(s.broker->finished());
        }
        s.pass(kBrokerLinger);
        EXPECT_TRUE(s.broker->finished());
        EXPECT_EQ(s.broker->leaves_ranks_behind(), still);
    }
}

TEST(RanksLeftBehind, NobodyWaitsForANodeThatNeverCame) {
    Simulation s(3, 1, Time(10000));
    s.join(0);
    s.join(1);
    s.pass(Time(10000));
    for (uint32_t rank : {0u, 1u}) s.exit(rank, 1 << 8);
    s.end(0);
    EXPECT_FALSE(s.broker->finished());
    s.end(1);
    EXPECT_TRUE(s.broker->finished());
}

TEST(RanksLeftBehind, AreThoseOfALostBroker) {
    for (const bool report : {false, true}) {
        Simulation s(6, 1, Time(10000), false, report ? FailureAction::report : FailureAction::abort);
        s.join_all();
        for (uint32_t node = 1; node < 6; ++node) s.lose_broker(node);
        s.pass(kLostDelay);
        for (uint32_t node = 0; node < 6; ++node)
            EXPECT_EQ(s.nodes[node]->leaves_ranks_behind(), !report && node >= 1 && node <= kReporters)
                << node;
    }
    // Also where this node ends before it has told.
    Simulation both(2, 1);
    both.join_all();
    both.lose_broker(1);
    both.exit(1, kKilled);
    both.end(1);
    EXPECT_TRUE(both.nodes[1]->finished());
    EXPECT_TRUE(both.nodes[1]->leaves_ranks_behind());
    // One that left because the step ends is not lost.
    Simulation s(2, 1);
    s.join_all();
    s.exit(0, kKilled);
    s.lose_broker(1);
    s.pass(kLostDelay);
    EXPECT_FALSE(s.nodes[1]->leaves_ranks_behind());
}

// All of them know, and not one of them which of the others is left to say it.
TEST(Death, OfTheBrokerIsSaidByAFewNodesHoweverManyThereAre) {
    for (const bool report : {false, true}) {
        Simulation s(40, 1, Time(10000), false, report ? FailureAction::report : FailureAction::abort);
        s.join_all();
        for (uint32_t node = 1; node < 40; ++node) s.lose_broker(node);
        s.pass(kLostDelay);
        EXPECT_EQ(s.log.size(), kReporters);
        for (const auto& line : s.log)
            EXPECT_NE(line.find("lost the rendezvous daemon on gpu0"), std::string::npos);
    }
}

TEST(Report, EveryDeathIsNamedEndsNobodyAndFailsWhatWaitsForIt) {
    Simulation s(3, 2, Time(10000), false, FailureAction::report);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.exit(3, kKilled);
    s.exit(5, kCode3);
    s.exit(4, kTermed);
    s.pass(Time(700));
    EXPECT_EQ(s.log,
              (std::vector<std::string>{
                  "rank 3 on gpu1 was killed by signal 9 (SIGKILL); the other ranks continue "
                  "(--dp-on-failure=report)",
                  "rank 5 on gpu2 exited with code 3; the other ranks continue (--dp-on-failure=report)",
                  "rank 4 on gpu2 was killed by signal 15 (SIGTERM); the other ranks continue "
                  "(--dp-on-failure=report)"}));
    ASSERT_TRUE(s.ranks[0].replies.contains(1));
    EXPECT_NE(s.ranks[0].replies[1].error().find("gpu1: rank 3 was killed"), std::string::npos);
    EXPECT_EQ(s.ranks[0].aborted, "");
    EXPECT_EQ(s.ranks[0].dead, (std::vector<uint32_t>{3, 5, 4}));
    s.pass(Time(40000));
    for (const auto& sent : s.signals) EXPECT_TRUE(sent.empty());
}

// What follows from the first death may be all the others': one message and one line for them, not one each.
TEST(Report, ThoseWhoFollowAreNamedTogether) {
    Simulation s(64, 2, Time(10000), false, FailureAction::report);
    s.join_all();
    s.hello_all();
    s.exit(3, kKilled);
    const size_t messages = s.messages_to_nodes;
    for (uint32_t rank = 4; rank < 128; ++rank) s.exit(rank, kCode3);
    EXPECT_EQ(s.messages_to_nodes, messages);
    s.pass(Time(300));
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_EQ(s.log[1],
              "ranks 4-127 (gpu[2-9],gpu[10-63]) died, too; first rank 4 on gpu2 exited with code 3; the "
              "other ranks continue (--dp-on-failure=report)");
    EXPECT_EQ(s.ranks[0].dead.size(), 125u);
}

TEST(Report, WhoComesLaterHearsOfTheDeaths) {
    Simulation s(3, 2, Time(10000), false, FailureAction::report);
    s.join(0);
    s.join(1);
    s.hello(2);
    s.exit(2, kKilled);
    s.join(2);
    s.hello(4);
    s.pass(kPoliteDelay);  // it died before the plan was out
    s.hello(0);
    EXPECT_EQ(s.ranks[4].dead, std::vector<uint32_t>{2});
    EXPECT_EQ(s.ranks[0].dead, std::vector<uint32_t>{2});
}

TEST(Report, ANodeThatIsLostBeforeItsRanksSaidHelloEndsNobodyLater) {
    Simulation s(3, 2, Time(10000), false, FailureAction::report);
    s.join_all();
    for (uint32_t rank : {0u, 1u, 4u, 5u}) s.hello(rank);
    s.cut(1);
    s.pass(Time(30000));
    for (uint32_t rank : {0u, 1u, 4u, 5u}) EXPECT_EQ(s.ranks[rank].aborted, "");
    EXPECT_TRUE(s.logged("node gpu1 (ranks 2-3) is lost: its connection closed; the other ranks continue"));
}

TEST(Report, WithoutABrokerWhoWaitsIsTold) {
    Simulation s(2, 2, Time(10000), false, FailureAction::report);
    s.join_all();
    s.hello_all();
    s.arrive(2, 1);
    s.arrive(3, 1, "held", {2, 3});
    wire::Request get;
    get.mutable_get()->set_key("never");
    s.request(3, 2, get);
    s.lose_broker(1);
    s.request(3, 3, get);
    s.pass(kLostDelay);
    const std::pair<uint32_t, uint64_t> calls[] = {{2, 1}, {3, 1}, {3, 2}, {3, 3}};
    for (const auto& [rank, id] : calls) {
        const wire::Reply& told = s.ranks[rank].replies.at(id);
        EXPECT_EQ(told.status(), wire::LOST);
        EXPECT_NE(told.error().find("lost the rendezvous daemon on gpu0"), std::string::npos);
    }
    EXPECT_EQ(s.ranks[2].aborted, "");
}

TEST(Report, ALostNodeOrBrokerEndsNobodyEither) {
    Simulation s(2, 2, Time(10000), false, FailureAction::report);
    s.join_all();
    s.hello_all();
    s.cut(1);
    s.pass(Time(40000));
    EXPECT_TRUE(s.logged("node gpu1 (ranks 2-3) is lost: its connection closed; the other ranks continue"));
    EXPECT_TRUE(s.signals[0].empty());
    s.lose_broker(1);
    s.pass(Time(40000));
    EXPECT_TRUE(s.logged("its ranks continue without it"));
    EXPECT_TRUE(s.signals[1].empty());
}

TEST(Death, AnExitWithoutGoodbyeIsNamedAndEndsNobody) {
    Simulation s(1, 2);
    s.join_all();
    s.hello_all();
    s.vanish(1);
    s.exit(1, 0);
    s.pass(kExitBatch);
    EXPECT_TRUE(s.logged("rank 1 on gpu0 exited with code 0 without a goodbye"));
    s.pass(Time(5000));
    EXPECT_TRUE(s.signals[0].empty());
}

TEST(Death, LastWordsAreHeardBeforeTheExit) {
    Simulation s(1, 2);
    s.join_all();
    s.hello_all();
    s.exit_first(0, 0);  // read before the goodbye that was sent earlier, on another socket
    s.goodbye(0);
    s.exit_first(1, 0);
    s.end(0);
    EXPECT_FALSE(s.broker->finished());
    s.goodbye(1);
    EXPECT_TRUE(s.broker->finished());
    EXPECT_TRUE(s.log.empty());
}

TEST(Death, AConnectionHeldByAChildDelaysTheNewsOnlyShortly) {
    Simulation s(1, 2);
    s.join_all();
    s.hello_all();
    s.exit_first(0, kKilled);
    EXPECT_TRUE(s.log.empty());
    s.pass(kExitGrace);
    EXPECT_TRUE(s.logged("rank 0 on gpu0 was killed by signal 9"));
}

TEST(Death, OfAProcessWhoseTaskGoesOnFailsOnlyWhatWaitsForIt) {
    Simulation s(1, 2);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.vanish(1);
    EXPECT_TRUE(s.ranks[0].replies.empty());
    s.pass(kExitFollows + Time(50));
    EXPECT_EQ(s.ranks[0].replies[1].status(), wire::ABORTED);
    EXPECT_TRUE(s.logged("rank 1 on gpu0 disconnected without a goodbye, but its task is still running"));
    s.pass(Time(5000));
    EXPECT_TRUE(s.signals[0].empty());
}

TEST(Death, OfALauncherEndsItsRanksAtOnceAndTheStep) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    auto actions = s.nodes[1]->on_launcher_lost();
    EXPECT_EQ(actions.signal_ranks, SIGKILL);
    for (auto& message : actions.to_broker) {
        auto told = s.broker->on_message(1, message, s.now);
        for (auto& line : told.log) s.log.push_back(line);
    }
    EXPECT_TRUE(s.logged("slurmstepd on gpu1 is gone"));
}

TEST(Death, OfANodesConnectionIsALostNode) {
    Simulation s(3, 2);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.cut(2);
    s.pass(kLostDelay);
    EXPECT_TRUE(s.logged("node gpu2 (ranks 4-5) is lost: its connection closed; ending the step"));
    EXPECT_NE(s.ranks[0].aborted, "");
}

TEST(Death, NodesThatSlurmKillsTogetherAreNotLost) {
    Simulation s(2, 1);
    s.join_all();
    s.cut(1);
    EXPECT_TRUE(s.log.empty());  // and then SIGKILL reaches the broker, too
}

TEST(Death, OfABrokerThatSlurmKillsWithTheStepIsNotOne) {
    for (const bool report : {false, true}) {
        Simulation s(2, 2, Time(10000), false, report ? FailureAction::report : FailureAction::abort);
        s.join_all();
        s.hello_all();
        s.lose_broker(1);
        s.pass(kLostDelay / 2);
        for (uint32_t rank : {2u, 3u}) s.exit(rank, kKilled);
        s.end(1);
        EXPECT_TRUE(s.nodes[1]->finished());
        s.pass(2 * kLostDelay);
        EXPECT_TRUE(s.log.empty()) << s.log.front();
    }
}

TEST(GracePeriod, FollowsTheStatus) {
    struct {
        int status;
        GracePeriod grace;
    } const cases[] = {{SIGKILL, kBroken},
                       {SIGSEGV, kBroken},
                       {SIGTERM, kTerminated},
                       {SIGINT, kTerminated},
                       {3 << 8, kFailed},
                       {1 << 8, kFailed},
                       {(128 + 15) << 8, kTerminated},
                       {(128 + 11) << 8, kBroken},
                       {(128 + 9) << 8, kBroken}};
    for (const auto& c : cases) EXPECT_EQ(grace_after(c.status), c.grace) << c.status;
}

}  // namespace
}  // namespace dp
