// SPDX-License-Identifier: Apache-2.0
#include "dpctl/commands.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "../engine/simulation.hpp"

namespace dp {
namespace {

// What the broker answers to the daemon of node 0.
wire::StepStatus status_of(Simulation& s) {
    wire::FromRank ask;
    ask.mutable_status();
    s.from_rank(0, ask);
    return s.told_status;
}

TEST(Status, SaysWhatTheRanksAreDoingAndWhoWaitsForWhom) {
    Simulation s(3, 2, Time(60000));
    s.join(0);
    s.join(1);
    for (uint32_t rank = 0; rank < 4; ++rank) s.start(rank);
    for (uint32_t rank = 0; rank < 3; ++rank) s.hello(rank);
    s.arrive(0, 1, "world", {}, "", 0, Time(30000));
    s.pass(Time(3000));
    EXPECT_EQ(status_text("12.0", status_of(s)),
              "step 12.0: 6 ranks on 3 nodes, for 3 s\n"
              "  gpu0  connected      ranks 0-1 said hello\n"
              "  gpu1  connected      rank 2 said hello; rank 3 started, no hello\n"
              "  gpu2  not connected\n"
              "group \"world\": 1 of 6 ranks wait, for 3 s; missing: gpu[0-1]: ranks 1-2 said hello, has "
              "not arrived; gpu1: "
              "rank 3 started, no hello (pid 1003); gpu2: ranks 4-5 not started (not connected: no plugin, "
              "no daemon or "
              "no network there)\n");
}

TEST(Status, SaysWhyAStepEndsAndHowRanksEnded) {
    Simulation s(1, 2);
    s.join_all();
    s.hello_all();
    s.goodbye(0);
    s.exit(0, 0);
    s.exit(1, 3 << 8);
    const wire::StepStatus status = status_of(s);
    EXPECT_EQ(status_text("12.0", status),
              "step 12.0: 2 ranks on 1 node, for 0 ms\n"
              "it is being ended: rank 1 on gpu0 exited with code 3\n"
              "  gpu0  connected  rank 0 exited with code 0; rank 1 exited with code 3\n");
    const auto json = nlohmann::json::parse(status_json("12.0", status));
    EXPECT_EQ(json["step"], "12.0");
    EXPECT_EQ(json["ending"], "rank 1 on gpu0 exited with code 3");
    EXPECT_EQ(json["nodes"][0]["ranks"][1]["exit_code"], 3);
    EXPECT_EQ(json["nodes"][0]["ranks"][1]["state"], "exited");
}

TEST(History, HasTheDeathsThatTheStepHasSurvived) {
    Simulation s(2, 1, Time(10000), false, FailureAction::restart);
    s.join_all();
    s.start_all();
    EXPECT_EQ(history_text("12.0", status_of(s)), "step 12.0: generation 0, 10 restarts left\n");
    s.pass(Time(2500));
    s.exit(1, 9);
    s.exit(0, 15);
    s.now += Time(40);
    s.start_all();
    const wire::StepStatus status = status_of(s);
    EXPECT_EQ(
        history_text("12.0", status),
        "step 12.0: generation 1, 9 restarts left\n"
        "  after 2.50 s  generation 1 began 0.04 s later  rank 1 on gpu1 was killed by signal 9 (SIGKILL)\n");
    EXPECT_NE(status_text("12.0", status).find("\ngeneration 1, 9 restarts left\n"), std::string::npos);
    const auto json = nlohmann::json::parse(history_json("12.0", status));
    EXPECT_EQ(json["generation"], 1);
    EXPECT_EQ(json["restarts_left"], 9);
    EXPECT_EQ(json["restarts"][0]["died_ms"], 2500);
    EXPECT_EQ(json["restarts"][0]["began_ms"], 2540);
    EXPECT_EQ(json["restarts"][0]["generation"], 1);
    EXPECT_FALSE(json["restarts"][0].contains("first_step"));
}

TEST(History, HasTheStepsThatWereRepeated) {
    Simulation s(2, 1, Time(10000), false, FailureAction::restart);
    s.join_all();
    s.start_all();
    s.hello_all();
    s.progress(1, 20);
    s.exit(1, 9);
    s.exit(0, 15);
    s.start_all();
    s.hello_all();
    s.now += Time(380);
    s.progress(0, 11);
    EXPECT_NE(history_text("12.0", status_of(s))
                  .find("(SIGKILL) at step 20; its first step, 11, came 0.38 s after the failure, 10 steps "
                        "repeated\n"),
              std::string::npos);
    const auto restart = nlohmann::json::parse(history_json("12.0", status_of(s)))["restarts"][0];
    EXPECT_EQ(restart["first_step"], 11);
    EXPECT_EQ(restart["first_step_ms"], 380);
    EXPECT_EQ(restart["steps_repeated"], 10);
}

}  // namespace
}  // namespace dp
