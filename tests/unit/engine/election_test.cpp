// SPDX-License-Identifier: Apache-2.0
//
// A broker is lost (--dp-spares, --dp-min-nodes): who may go on, who is elected, and what the step's nodes do meanwhile.
#include "engine/election.hpp"

#include <gtest/gtest.h>

#include "simulation.hpp"

namespace dp {
namespace {

// ---- the quorum ----

TEST(Quorum, NeedsHalfOfARollAndUntilItIsSettledAsManyAsTheLast) {
    Quorum quorum;
    const std::vector<uint32_t> five{1, 2, 3, 4, 5};
    quorum.begin(five, Time(0));
    EXPECT_EQ(quorum.needed(), 3u);  // of 6
    EXPECT_TRUE(quorum.is_settled());
    const std::vector<uint32_t> two{1, 2};
    quorum.begin(two, Time(0));
    EXPECT_EQ(quorum.needed(), 3u);         // two of 3, but the last one's
    EXPECT_FALSE(quorum.note_known_by(4));  // it is not of this roll
    EXPECT_FALSE(quorum.note_known_by(1));
    EXPECT_FALSE(quorum.note_known_by(1));
    EXPECT_TRUE(quorum.note_known_by(2));
    EXPECT_EQ(quorum.needed(), 2u);
    // Another one before it is settled: the first is not forgotten.
    quorum.begin(five, Time(0));
    quorum.begin(two, Time(0));
    EXPECT_EQ(quorum.needed(), 3u);
}

TEST(Quorum, IsHeldFromWhatEnoughNodesHaveConfirmed) {
    Quorum quorum;
    const std::vector<uint32_t> four{1, 2, 3, 4};
    quorum.begin(four, Time(100));
    EXPECT_EQ(quorum.last_confirmed(Time(100)), Time(100));
    quorum.confirm(1, Time(500));
    EXPECT_EQ(quorum.last_confirmed(Time(900)), Time(100));  // itself, one, and a third
    quorum.confirm(2, Time(400));
    quorum.confirm(2, Time(300));  // a late one
    EXPECT_EQ(quorum.last_confirmed(Time(900)), Time(400));
    EXPECT_EQ(quorum.confirmed_since(Time(450)), 2u);
    for (const uint32_t node : {2, 3, 4}) quorum.lose(node);
    EXPECT_EQ(quorum.last_confirmed(Time(900)), Time::min());
    quorum.confirm(3, Time(800));  // it is lost
    EXPECT_EQ(quorum.last_confirmed(Time(900)), Time::min());
}

TEST(Quorum, OfAnElectedBrokerNeedsMoreThanHalf) {
    Quorum quorum;
    quorum.elect(4);
    EXPECT_EQ(quorum.needed(), 3u);
    for (const uint32_t node : {1, 2}) quorum.join(node);
    EXPECT_EQ(quorum.confirmed_since(Time(0)), 1u);
    for (const uint32_t node : {1, 2}) quorum.confirm(node, Time(10));
    EXPECT_EQ(quorum.confirmed_since(Time(0)), 3u);
    const std::vector<uint32_t> others{1, 2};
    quorum.begin(others, Time(20));
    EXPECT_EQ(quorum.needed(), 3u);
    EXPECT_FALSE(quorum.note_known_by(1));
    EXPECT_TRUE(quorum.note_known_by(2));
}

// ---- one node's part ----

constexpr Time kStart{1000};

wire::Roll roll_of(const char* nodes, std::initializer_list<uint32_t> successors) {
    wire::Roll roll;
    roll.set_number(3);
    roll.set_nodes(nodes);
    roll.set_settled_by(6);
    for (const uint32_t node : successors) {
        auto& one = *roll.add_successors();
        one.set_node_rank(node);
        one.set_host("gpu" + std::to_string(node));
    }
    return roll;
}
wire::Support says(uint32_t roll = 3, bool is_settled = false, uint32_t broker = 0) {
    wire::Support said;
    said.set_broker(broker);
    said.set_roll(roll);
    said.set_is_settled(is_settled);
    return said;
}

Election::Actions note(Election& election, const wire::Roll& roll) {
    return election.note(roll, 6);
}

TEST(Election, SeeksTheSuccessorsInOrderUntilOneIsFound) {
    Election election(5);
    note(election, roll_of("0-5", {2, 4}));
    auto step = election.begin({}, kStart);
    ASSERT_TRUE(step.seek);
    EXPECT_EQ(step.seek->node_rank(), 2u);
    EXPECT_FALSE(election.tick(kStart + kSuccessorConnectTimeout - Time(1)).seek);
    step = election.tick(kStart + kSuccessorConnectTimeout);
    EXPECT_EQ(step.seek->node_rank(), 4u);
    election.reached(kStart + kSuccessorConnectTimeout);
    EXPECT_FALSE(election.tick(kStart + 2 * kSuccessorConnectTimeout).seek);
    // Once round.
    step = election.tick(kStart + kSuccessorConnectTimeout + kSupportTimeout);
    EXPECT_TRUE(step.disconnect && !step.seek);
    const Time again = *election.next_deadline();
    EXPECT_GE(again, kStart + kSuccessorConnectTimeout + kSupportTimeout + kElectionPause);
    step = election.tick(again);
    EXPECT_EQ(step.seek->node_rank(), 2u);
    step = election.unreachable(again);
    EXPECT_EQ(step.seek->node_rank(), 4u);
    election.found();
    EXPECT_FALSE(election.is_under_way());
    EXPECT_FALSE(election.next_deadline());
}

TEST(Election, GivesUpAfterAWhile) {
    Election election(5);
    note(election, roll_of("0-5", {2}));
    election.begin({}, kStart);
    Time now = kStart;
    auto step = election.tick(now);
    for (; !step.over && now < kStart + Time(60000); step = election.tick(now))
        now = std::max(now + Time(1), election.next_deadline().value());
    EXPECT_EQ(step.over, "no other broker could be elected within 30 s");
    EXPECT_GE(now, kStart + kElectionTimeout);
    Election nobody(5);
    note(nobody, roll_of("0-5", {}));
    EXPECT_EQ(nobody.begin({}, kStart).over, "no other node can be the broker");
}

TEST(Election, TakesMoreThanHalfOfASettledRoll) {
    Election election(2);
    note(election, roll_of("0-3", {2, 3}));
    // They came first.
    EXPECT_FALSE(election.support(1, says()).elected);
    auto step = election.begin({}, kStart);
    EXPECT_TRUE(step.disconnect && !step.elected);
    step = election.support(3, says());
    EXPECT_FALSE(step.elected);  // nobody knows that the roll is settled
    step = election.support(3, says(3, true));
    EXPECT_TRUE(step.elected);
    EXPECT_FALSE(election.is_under_way());
}

TEST(Election, SettlesARollByWhoKnowsIt) {
    Election election(2);
    wire::Roll roll = roll_of("0-3", {2});
    roll.set_settled_by(4);
    note(election, roll);
    election.begin({}, kStart);
    for (const uint32_t node : {1, 3}) EXPECT_FALSE(election.support(node, says()).elected);
    EXPECT_TRUE(election.support(0, says()).elected);
}

TEST(Election, TakesNoRollThatCannotBe) {
    for (const char* nodes : {"", "0-6", "x", "3-1", "0-4000000000"}) {
        Election election(2);
        note(election, roll_of(nodes, {2}));
        EXPECT_TRUE(election.begin({}, kStart).over) << nodes;
        EXPECT_FALSE(election.support(1, says(3, true)).elected) << nodes;
    }
    Election election(2);
    note(election, roll_of("0-3", {2, 77}));
    EXPECT_TRUE(election.begin({}, kStart).over);
}

// ---- how long an elected broker waits ----

TEST(SuccessionWait, IsShortOnceAllHaveComeAndLongForWhoMayStillHaveRanks) {
    const OldWorldEnds closed{kStart + Time(500), kStart + Time(30000)};
    const OldWorldEnds silent{kStart + Time(2000), kStart + Time(2000)};
    const auto wait_of = [&](const OldWorldEnds& own) {
        return SuccessionWait({{}, "its connection closed", kStart, own}, 5, kStart + Time(100));
    };
    SuccessionWait wait = wait_of(closed);
    EXPECT_FALSE(wait.begins_at());
    EXPECT_EQ(wait.fails_at(), kStart + Time(100) + kSuccessionTimeout);
    wait.joined(closed);
    EXPECT_FALSE(wait.begins_at());
    wait.joined(closed);  // three of five
    EXPECT_EQ(wait.begins_at(), kStart + Time(30000));
    EXPECT_EQ(wait.fails_at(), kStart + Time(30000) + kSuccessionTimeout);
    wait.joined(closed);  // all but the broker
    EXPECT_EQ(wait.begins_at(), kStart + Time(500));
    // Two saw it close, and two missed it: most have missed it when the third has.
    SuccessionWait mixed = wait_of(closed);
    for (const auto& ends : {silent, closed, silent}) mixed.joined(ends);
    EXPECT_EQ(mixed.begins_at(), kStart + Time(2000));
    // What confirms it may come later.
    EXPECT_EQ(mixed.next_deadline(), kStart + Time(2000));
    mixed.note_due();
    EXPECT_EQ(mixed.next_deadline(), kStart + Time(2000) + kSuccessionTimeout);
}

TEST(Election, CountsNobodyTwiceAndNobodyWhoHasLeft) {
    Election election(2);
    note(election, roll_of("0-3", {2}));
    election.note_settled(3);
    election.begin({}, kStart);
    for (int again = 0; again < 3; ++again) EXPECT_FALSE(election.support(1, says()).elected);
    election.lose(1);
    EXPECT_FALSE(election.support(3, says()).elected);
    EXPECT_TRUE(election.support(1, says()).elected);
}

TEST(Election, SendsAwayWhoMeansAnotherRollOrBroker) {
    Election election(2);
    note(election, roll_of("0-3", {2}));
    election.note_settled(3);
    election.begin({}, kStart);
    for (const auto& said : {says(2, true), says(4, true), says(3, true, 7)}) {
        const auto step = election.support(1, said);
        EXPECT_EQ(step.refused, std::vector<uint32_t>{1});
        EXPECT_FALSE(step.elected);
    }
    EXPECT_TRUE(election.support(1, says()).refused.empty());
    // The next roll, from a broker that lives.
    EXPECT_EQ(note(election, roll_of("0-3", {2})).refused, std::vector<uint32_t>{1});
    // Its turn is over without a majority: they may have more luck elsewhere.
    election.begin({}, kStart);
    election.support(3, says());
    EXPECT_EQ(election.tick(kStart + kSupportTimeout + kFirstStandsLonger).refused, std::vector<uint32_t>{3});
    // Not of the roll, or itself.
    EXPECT_EQ(election.support(5, says()).refused, std::vector<uint32_t>{5});
    EXPECT_EQ(election.support(2, says()).refused, std::vector<uint32_t>{2});
}

// ---- the step ----

Settings outliving(uint32_t spares, std::optional<uint32_t> min_nodes = {}) {
    Settings settings;
    settings.spares = spares;
    settings.min_nodes = min_nodes;
    return settings;
}

class ElectionInStep : public testing::Test {
 protected:
    std::optional<Simulation> step_;
    Simulation& s() { return *step_; }

    void begin(uint32_t nodes, uint32_t tasks, const Settings& settings) {
        step_.emplace(nodes, tasks, Time(60000), false, FailureAction::restart, settings, 3);
        s().end_by_signals = true;
        s().join_all();
        start();
    }
    void TearDown() override {
        if (HasFailure())
            for (const auto& line : s().log) std::fprintf(stderr, "  %s\n", line.c_str());
    }
    // All ranks of the generation run, and it is settled.
    void start() {
        s().start_all();
        s().hello_all();
        pass(Time(600));
    }
    void pass(Time time) { s().pass(time, Time(20)); }
    std::vector<uint32_t> ranks_on(uint32_t node) const {
        return step_->lives[node] ? step_->lives[node]->place->ranks : std::vector<uint32_t>();
    }
    uint32_t generation_of(uint32_t node) const {
        return step_->lives[node] ? step_->lives[node]->generation : 0;
    }
};

TEST_F(ElectionInStep, ASpareIsTheNextBrokerAndHasRankZero) {
    begin(5, 2, outliving(2));
    s().kill_daemon(0);
    pass(Time(1000));
    EXPECT_EQ(s().elected.size(), 1u);
    ASSERT_TRUE(s().elected.contains(3));
    EXPECT_EQ(ranks_on(3), (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(ranks_on(1), (std::vector<uint32_t>{2, 3}));
    EXPECT_EQ(s().lives[1]->master_addr, Simulation::address(3));
    EXPECT_EQ(s().lives[1]->place->world_size, 6u);
    start();
    EXPECT_TRUE(s().logged("node gpu0 (ranks 0-1) is lost: its connection closed; generation 1 began "));
    EXPECT_TRUE(s().logged("later with spare node gpu3"));
    // What ranks ask, the new one answers.
    for (uint32_t rank = 0; rank < 6; ++rank) s().arrive(rank, 1);
    for (const auto& rank : s().ranks) EXPECT_EQ(rank.replies.at(1).status(), wire::OK);
    // That one dies, too.
    s().kill_daemon(3);
    pass(Time(1000));
    ASSERT_TRUE(s().elected.contains(4));
    EXPECT_EQ(generation_of(1), 2u);
    EXPECT_EQ(ranks_on(4), (std::vector<uint32_t>{0, 1}));
    start();
    EXPECT_TRUE(s().logged("node gpu3 (ranks 0-1) is lost: its connection closed; generation 2 began "));
    // And no other is left.
    s().kill_daemon(4);
    pass(Time(1000));
    EXPECT_TRUE(s().no_other_life[1] && s().no_other_life[2]);
    EXPECT_TRUE(s().logged("no spare node is left, and without --dp-min-nodes the world cannot shrink"));
}

TEST_F(ElectionInStep, TheWorldShrinksByItsBroker) {
    begin(4, 2, outliving(0, 2));
    s().kill_daemon(0);
    pass(Time(1000));
    ASSERT_TRUE(s().elected.contains(1));
    EXPECT_EQ(ranks_on(1), (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(ranks_on(3), (std::vector<uint32_t>{4, 5}));
    start();
    EXPECT_TRUE(s().logged("later with 6 ranks on 3 nodes"));
    // A rank's death is the new broker's.
    s().exit(4, SIGKILL);
    pass(Time(100));
    EXPECT_EQ(generation_of(1), 2u);
}

TEST_F(ElectionInStep, TwoNodesAreLostWithTheBroker) {
    begin(6, 1, outliving(1, 1));
    s().frozen = {0, 2};
    pass(Time(8000));
    ASSERT_TRUE(s().elected.contains(5));
    EXPECT_EQ(ranks_on(5), (std::vector<uint32_t>{0}));
    EXPECT_EQ(ranks_on(1), (std::vector<uint32_t>{1}));
    EXPECT_EQ(ranks_on(4), (std::vector<uint32_t>{3}));
    start();
    EXPECT_TRUE(s().logged(
        "2 nodes (gpu[0,2], ranks 0,2) are lost (the broker: it has confirmed no heartbeat for 1 s)"));
}

// ---- survivors (dp_rejoin) ----

class SurvivorsInStep : public ElectionInStep {
 protected:
    // Four nodes with a task each, the last one a spare; ranks 1 and 2 can rejoin.
    void begin() {
        Settings settings = outliving(1);
        settings.grace_seconds = 10;
        ElectionInStep::begin(4, 1, settings);
        s().end_by_signals = false;
        for (const uint32_t rank : {1, 2}) s().enable_rejoin(rank);
    }
    // Until all others have seen that.
    void silence_broker() {
        s().frozen = {0};
        pass(Time(1600));
    }
    std::optional<wire::NextWorld> next_world_of(uint32_t rank) { return s().ranks[rank].next_world; }
};

TEST_F(SurvivorsInStep, GoOnUnderTheNextBroker) {
    begin();
    for (const uint32_t rank : {0, 1, 2}) s().progress(rank, 30);
    silence_broker();
    for (const uint32_t rank : {1, 2}) {
        EXPECT_NE(s().ranks[rank].peer_lost, "");
        EXPECT_EQ(s().ranks[rank].aborted, "");
        EXPECT_EQ(s().spared[rank].back(), std::set<uint32_t>{0});
    }
    EXPECT_TRUE(s().elected.empty()) << "nobody supports another while its rank is of the old world";
    s().rejoin(1);
    s().rejoin(2);
    pass(Time(2500));
    ASSERT_TRUE(s().elected.contains(3));
    for (const uint32_t rank : {1, 2}) {
        ASSERT_TRUE(next_world_of(rank));
        EXPECT_EQ(next_world_of(rank)->plan().generation(), 1u);
        EXPECT_EQ(next_world_of(rank)->plan().replaced(), "0");
        EXPECT_EQ(next_world_of(rank)->plan().master_addr(), Simulation::address(3));
        EXPECT_EQ(s().survivors[rank], std::set<uint32_t>{0});
    }
    s().start(0);
    EXPECT_TRUE(s().logged("generation 1 began "));
    // They are ranks as all others.
    s().hello(0);
    s().progress(1, 31);
    EXPECT_TRUE(s().logged("generation 1 took its first step, 31, "));
    EXPECT_TRUE(s().logged(" after the failure; 0 steps repeated"));
    for (const uint32_t rank : {0, 1, 2}) s().arrive(rank, 7);
    for (const uint32_t rank : {0, 1, 2}) EXPECT_EQ(s().ranks[rank].replies[7].status(), wire::OK);
}

// Until a broker that lives could begin it elsewhere there are 1.5 s.
TEST_F(SurvivorsInStep, HaveHalfOfTheTimeThatIsLeft) {
    begin();
    silence_broker();
    s().rejoin(1);
    EXPECT_TRUE(s().spared[2].back().contains(0));
    pass(Time(750));
    EXPECT_EQ(s().signals[2].back().second, SIGKILL);
    EXPECT_TRUE(s().spared[2].back().empty());
    EXPECT_TRUE(s().logged(
        "rank 2 on gpu2 did not rejoin (dp_rejoin) soon after rank 0's daemon was lost, so it is restarted"));
    s().exit(2, SIGKILL);
    pass(Time(2000));
    ASSERT_TRUE(next_world_of(1));
    EXPECT_EQ(next_world_of(1)->plan().replaced(), "0,2");
}

// It may live, and begin them elsewhere at once.
TEST_F(SurvivorsInStep, AreNoneWhereTheBrokerHasClosedTheConnection) {
    begin();
    s().kill_daemon(0);
    pass(Time(20));
    EXPECT_NE(s().ranks[1].aborted, "");
    ASSERT_FALSE(s().signals[1].empty());
    EXPECT_EQ(s().signals[1][0].second, SIGKILL);
    EXPECT_TRUE(s().spared[1][0].empty());
}

// The silence was only the beginning of that.
TEST_F(SurvivorsInStep, WhoHaveNotComeAreKilledWhenTheConnectionCloses) {
    begin();
    silence_broker();
    s().rejoin(1);
    s().lose_broker(2);
    pass(Time(20));
    EXPECT_EQ(s().signals[2].back().second, SIGKILL);
    EXPECT_TRUE(s().spared[2].back().empty());
    EXPECT_EQ(s().spared[1].back(), std::set<uint32_t>{0});
}

// It was stopped itself, and does not know how long ago the broker began its ranks elsewhere.
TEST_F(SurvivorsInStep, AreNoneOnANodeThatWakesUpLate) {
    begin();
    s().frozen = {0, 1};
    s().now += Time(5000);
    s().frozen = {0};
    pass(Time(20));
    ASSERT_FALSE(s().signals[1].empty());
    EXPECT_EQ(s().signals[1][0].second, SIGKILL);
    EXPECT_TRUE(s().spared[1][0].empty());
}

// The lost broker knew already who goes on.
TEST_F(SurvivorsInStep, OfADeathGoOnWhereTheBrokerIsLostMeanwhile) {
    for (const bool dies : {false, true}) {
        begin();
        s().uncleared.insert(0);  // so the next generation cannot begin
        s().exit(0, SIGKILL);
        s().rejoin(1);
        s().rejoin(2);
        pass(Time(100));
        if (dies) s().exit(2, SIGKILL);
        EXPECT_FALSE(next_world_of(1));
        silence_broker();
        pass(Time(2500));
        ASSERT_TRUE(s().elected.contains(3));
        ASSERT_TRUE(next_world_of(1));
        EXPECT_EQ(next_world_of(1)->plan().replaced(), dies ? "0,2" : "0");
    }
}

// Others may have gone on without them.
TEST_F(SurvivorsInStep, DoNotWakeUpWhereNoBrokerIsElected) {
    begin();
    s().other_part = {1};
    pass(Time(1600));
    s().rejoin(1);
    pass(Time(20000));
    EXPECT_TRUE(s().spared[1].back().contains(0));
    EXPECT_FALSE(s().no_other_life[1]);
    pass(Time(15000));
    EXPECT_TRUE(s().no_other_life[1]);
    EXPECT_EQ(s().ranks[1].aborted, "");
    EXPECT_EQ(s().signals[1].back().second, SIGKILL);
    EXPECT_TRUE(s().spared[1].back().empty());
}

TEST_F(SurvivorsInStep, AreKilledWhereTheyLeaveTheirPlace) {
    begin();
    silence_broker();
    s().rejoin(1);
    s().vanish(1);
    EXPECT_EQ(s().to_kill, (std::vector<std::pair<uint32_t, uint32_t>>{{1, 0}}));
}

// ---- networks ----

// It hears nobody, and its ranks may live as long as it trusts the broker that it has lost.
TEST_F(ElectionInStep, ANodeThatDoesNotComeIsWaitedFor) {
    for (const bool comes : {true, false}) {
        step_.emplace(5, 1, Time(60000), false, FailureAction::restart, outliving(0, 1), 30);
        s().end_by_signals = true;
        s().join_all();
        start();
        s().cut_off = {4};
        pass(Time(1000));
        const Time lost = s().now;
        s().kill_daemon(0);
        if (comes) {
            pass(Time(200));
            s().cut_off.clear();
            s().lose_broker(4);
        }
        pass(Time(2000));
        EXPECT_EQ(generation_of(1), comes ? 1u : 0u);
        pass(Time(40000));
        EXPECT_EQ(generation_of(1), 1u);
        EXPECT_EQ(ranks_on(3), std::vector<uint32_t>{2});
        if (comes) continue;
        ASSERT_FALSE(s().signals[4].empty());
        EXPECT_LT(s().signals[4][0].first, lost + Time(28000));
    }
}

TEST_F(ElectionInStep, MostNodesGoOnWithoutABrokerThatIsCutOff) {
    begin(4, 1, outliving(0, 1));
    s().other_part = {0};
    const Time cut = s().now;
    pass(Time(8000));
    ASSERT_TRUE(s().elected.contains(1));
    EXPECT_EQ(generation_of(3), 1u);
    EXPECT_TRUE(s().no_other_life[0]);
    EXPECT_TRUE(s().logged("only 1 of 4 nodes can be reached, too few to go on; ending the step"));
    EXPECT_FALSE(s().broker->leaves_ranks_behind());  // which would end the others, through Slurm
    // It had ended its ranks before.
    ASSERT_FALSE(s().signals[0].empty());
    EXPECT_EQ(s().signals[0][0].second, SIGKILL);
    EXPECT_LT(s().signals[0][0].first, cut + Time(3000));
}

TEST_F(ElectionInStep, HalfOfTheNodesElectNobody) {
    begin(4, 1, outliving(0, 1));
    s().other_part = {2, 3};
    pass(Time(36000));
    EXPECT_TRUE(s().elected.empty());
    EXPECT_EQ(generation_of(0), 1u);
    EXPECT_FALSE(s().no_other_life[0]);
    EXPECT_TRUE(s().no_other_life[2] && s().no_other_life[3]);
    EXPECT_TRUE(
        s().logged("node gpu2 lost the rendezvous daemon on gpu0: it has confirmed no heartbeat for 1 s; no "
                   "other broker could be elected within 30 s; the step ends on gpu2"));
}

TEST_F(ElectionInStep, ABrokerWhoseNodeCannotGoOnLeavesItToTheOthers) {
    begin(4, 1, outliving(1));
    s().end_keeper(0, SIGKILL);
    pass(Time(1000));
    ASSERT_TRUE(s().elected.contains(3));
    EXPECT_EQ(ranks_on(3), (std::vector<uint32_t>{0}));
    EXPECT_TRUE(s().keepers_killed[0]);
    EXPECT_EQ(s().log.front(), "the keeper of rank 0 on gpu0 was killed by signal 9 (SIGKILL)");
    // The others of two nodes are too few for that.
    begin(2, 1, outliving(0, 1));
    s().end_keeper(0, SIGKILL);
    pass(Time(1000));
    EXPECT_TRUE(s().elected.empty());
    EXPECT_TRUE(s().logged("the keeper of rank 0 on gpu0 was killed by signal 9 (SIGKILL); ending the step"));
}

// The others may not have heard that the step ends, and go on without it.
TEST_F(ElectionInStep, ANodeThatEndsItsRanksInPeaceStopsThatWithoutABroker) {
    for (const bool closes : {true, false}) {
        step_.emplace(4, 1, Time(60000), false, FailureAction::restart, outliving(0, 1), 3);
        s().join_all();
        start();
        s().exit(3, 2 << 8);  // final: the others have 30 s
        pass(Time(600));
        EXPECT_TRUE(s().no_other_life[1]);
        ASSERT_EQ(s().signals[1].size(), 1u);
        EXPECT_EQ(s().signals[1][0].second, SIGTERM);
        if (closes)
            s().kill_daemon(0);
        else
            s().frozen = {0};
        pass(Time(closes ? 100 : 2000));
        ASSERT_EQ(s().signals[1].size(), 2u);
        EXPECT_EQ(s().signals[1][1].second, SIGKILL);
    }
}

// A broker that ends its step in peace is cut off, and nobody else has heard of the end.
TEST_F(ElectionInStep, ABrokerThatEndsItsRanksInPeaceStopsThatWithoutTheOthers) {
    for (const bool cut : {true, false}) {
        begin(4, 1, outliving(0, 1));
        s().end_by_signals = false;
        if (cut) s().other_part = {0};
        s().exit(0, 2 << 8);  // final: the others of its node would have 30 s
        pass(Time(3500));
        EXPECT_TRUE(s().no_other_life[0]);
        EXPECT_EQ(std::ranges::count(s().signals[0], SIGKILL, [](const auto& one) { return one.second; }),
                  cut ? 1 : 0);
    }
}

// Two spares are lost one after the other: the roll goes along, and two nodes of four are enough in the end.
TEST_F(ElectionInStep, TheQuorumFollowsLostSpares) {
    begin(4, 1, outliving(2));
    for (const uint32_t spare : {2, 3}) {
        s().cut(spare);
        pass(Time(1000));
    }
    EXPECT_FALSE(s().no_other_life[0] || s().lives[0]);
    s().cut(1);
    pass(Time(1000));
    EXPECT_TRUE(s().logged("no spare node is left"));
}

}  // namespace
}  // namespace dp
