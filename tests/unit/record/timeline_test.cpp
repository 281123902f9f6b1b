// SPDX-License-Identifier: Apache-2.0
//
// Where the time of a run went, by hand-made records: every second is somewhere, once.
#include "record/timeline.hpp"

#include <random>

#include "recorded.hpp"

namespace dp {
namespace {

using record::Moment;

class TimelineTest : public RecordTest {};

// Two ranks: the second one communicates longer, because it computes less.
void a_second_of_training(record::Sample& sample) {
    for (const uint32_t ms : {700, 600}) sample.add_compute_ms(ms);
    for (const uint32_t ms : {200, 300}) sample.add_communication_ms(ms);
    for (const uint32_t ms : {100, 100}) sample.add_load_ms(ms);
    for (int i = 0; i < 2; ++i) sample.add_steps(4);
}

TEST_F(TimelineTest, CommunicationBeyondTheLeastIsWaitingForOthers) {
    RecordedFile file(folder, 0, 2);
    file.generation(1000, 0, {0, 1});
    for (const uint32_t rank : {0, 1}) file.moment(1500, Moment::STARTED, rank);
    for (int second = 2; second <= 11; ++second) file.sample(second * 1000 + 1000, a_second_of_training);
    for (const uint32_t rank : {0, 1}) file.moment(12000, Moment::EXITED, rank);
    file.end(12000);

    const Timeline time = timeline();
    EXPECT_DOUBLE_EQ(time.allocated, 24);
    EXPECT_NEAR(of(time.ledger, Spent::start), 4, 1e-6)
        << "to 2 s: the first sample's second is all labelled";
    EXPECT_NEAR(of(time.ledger, Spent::compute), 13, 1e-3);
    EXPECT_NEAR(of(time.ledger, Spent::communication), 4, 1e-3);
    EXPECT_NEAR(of(time.ledger, Spent::waiting), 1, 1e-3);
    EXPECT_NEAR(of(time.ledger, Spent::load), 2, 1e-3);
    EXPECT_NEAR(*goodput(time.ledger), 17.0 / 24, 1e-4);
    EXPECT_NEAR(of(time.nodes[0].tasks[1].ledger, Spent::waiting), 1, 1e-3)
        << "it is the quick one that waits";
    EXPECT_EQ(course_of(time.nodes[0].tasks[0]), "sscccccccccc");
    const RecordedRun run = records().runs[0];
    EXPECT_EQ(run.outcome.how, RecordedRun::How::finished);
    EXPECT_EQ(run.nodes[0].tasks[0].steps, 40);
}

TEST_F(TimelineTest, ARankAloneWaitsForNobody) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0);
    file.sample(1000, [](record::Sample& sample) { sample.add_communication_ms(1000); }).end(1000);
    EXPECT_NEAR(of(timeline().ledger, Spent::communication), 1, 1e-6);
}

// From step 5 on they are taken again: the steps 6 to 10 of the first generation, and the step in which it died.
TEST_F(TimelineTest, WhatARestartThrowsAwayIsRepeatedWork) {
    RecordedFile file(folder, 0, 1);
    const auto second = [](record::Sample& sample) {
        sample.add_compute_ms(1000);
        sample.add_steps(1);
        sample.add_step_count(1);
    };
    file.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0);
    for (int i = 1; i <= 10; ++i) file.sample(i * 1000, second);
    file.sample(10'500, [](record::Sample& sample) { sample.add_compute_ms(500); });
    file.end_of_generation(10'500, 0, "rank 0 on node0 was killed by signal 9 (SIGKILL)", false);
    file.generation(12'000, 1, {0}, 1).moment(12'000, Moment::STARTED, 0, 1);
    file.sample(14'000, [](record::Sample& sample) {
        sample.add_compute_ms(1000);
        sample.add_step_count(6);
    });
    file.moment(14'000, Moment::FIRST_STEP, 0, 1, [](Moment& moment) { moment.set_step(6); });
    file.moment(15'000, Moment::EXITED, 0, 1).end(15'000);

    const Timeline time = timeline();
    EXPECT_NEAR(of(time.ledger, Spent::compute), 5 + 1, 1e-3);
    EXPECT_NEAR(of(time.ledger, Spent::repeated), 5.5, 1e-3);
    EXPECT_NEAR(of(time.ledger, Spent::restart), 2.5, 1e-3) << "until its first phase, 13 s";
    EXPECT_NEAR(of(time.ledger, Spent::unlabelled), 1, 1e-3);
    const RecordedRun run = records().runs[0];
    ASSERT_EQ(run.generations.size(), 2u);
    EXPECT_EQ(run.generations[0].reason, "rank 0 on node0 was killed by signal 9 (SIGKILL)");
    EXPECT_EQ(run.generations[0].last_step, 10);
    EXPECT_EQ(run.generations[1].first_step, 6);
    EXPECT_EQ(run.outcome.how, RecordedRun::How::finished);
}

// From step 4 on the requeued job's next run takes them again.
TEST_F(TimelineTest, WhatARequeueThrowsAwayIsRepeatedWork) {
    const auto second = [](record::Sample& sample) {
        sample.add_compute_ms(1000);
        sample.add_steps(1);
        sample.add_step_count(1);
    };
    RecordedFile first(folder, 0, 1);
    first.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0);
    for (int i = 1; i <= 10; ++i) first.sample(i * 1000, second);
    first.end_of_generation(10'000, 0, "the job was requeued", true).end(10'000);
    RecordedFile requeued(folder, 1, 1, 1, 1'000'000'100'000, "fedcba9876543210");
    requeued.generation(0, 1, {0}, 1).moment(0, Moment::STARTED, 0, 1);
    for (int i = 1; i <= 5; ++i) {
        requeued.sample(i * 1000, second);
        if (i == 1)
            requeued.moment(1000, Moment::FIRST_STEP, 0, 1, [](Moment& moment) { moment.set_step(4); });
    }
    requeued.moment(5000, Moment::EXITED, 0, 1).end(5000);

    const Records all = records();
    ASSERT_EQ(all.runs.size(), 2u);
    EXPECT_EQ(all.runs[0].requeued_from, 3);
    EXPECT_EQ(all.runs[1].requeued_from, std::nullopt);
    const auto before = read_timeline(all.runs[0]), after = read_timeline(all.runs[1]);
    ASSERT_TRUE(before && after);
    expect_nothing_lost(*before);
    EXPECT_NEAR(of(before->ledger, Spent::compute), 3, 1e-3);
    EXPECT_NEAR(of(before->ledger, Spent::repeated), 7, 1e-3);
    EXPECT_NEAR(of(after->ledger, Spent::compute), 5, 1e-3);
}

// The first run's steps from 3 on were for nothing, whichever run went on from there; a run that took no step throws nothing away.
TEST_F(TimelineTest, ARequeuedJobMayGoBackFurtherInALaterRun) {
    const std::optional<uint64_t> first_steps[] = {std::nullopt, 9, std::nullopt, 4, 6};
    for (uint32_t i = 0; i < 5; ++i) {
        RecordedFile file(folder, i, 1, 1, 1'000'000'000'000 + i * 100'000,
                          "000000000000000" + std::to_string(i));
        file.generation(0, i, {0}, 1).moment(0, Moment::STARTED, 0, i);
        if (first_steps[i])
            file.moment(1000, Moment::FIRST_STEP, 0, i,
                        [&](Moment& moment) { moment.set_step(*first_steps[i]); });
        file.end(5000);
    }
    const Records all = records();
    ASSERT_EQ(all.runs.size(), 5u);
    std::vector<std::optional<int64_t>> from;
    for (const RecordedRun& run : all.runs) from.push_back(run.requeued_from);
    EXPECT_EQ(from, (std::vector<std::optional<int64_t>>{3, 3, 3, 5, std::nullopt}));
}

// Another cluster's job of the same number, or a step with the same number of a script that is not its beginning again.
TEST_F(TimelineTest, ARunThatBeginsAtTheFirstGenerationIsNoRequeue) {
    for (uint32_t i = 0; i < 2; ++i) {
        RecordedFile file(folder, i, 1, 1, 1'000'000'000'000 + i * 100'000,
                          "000000000000000" + std::to_string(i));
        file.generation(0, 0, {0}, 1).generation(1000, 1, {0}, 1);
        file.moment(2000, Moment::FIRST_STEP, 0, 1, [](Moment& moment) { moment.set_step(4); });
        file.end(5000);
    }
    for (const RecordedRun& run : records().runs) EXPECT_EQ(run.requeued_from, std::nullopt);
}

TEST_F(TimelineTest, TheCheckpointFromWhichARequeueGoesOnIsNotRepeated) {
    RecordedFile first(folder, 0, 1);
    first.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0);
    first.sample(5000, [](record::Sample& sample) {
        sample.add_compute_ms(5000);
        sample.add_step_count(10);
    });
    first.sample(9000, [](record::Sample& sample) { sample.add_checkpoint_ms(4000); }).end(9000);
    RecordedFile requeued(folder, 1, 1, 1, 1'000'000'100'000, "fedcba9876543210");
    requeued.generation(0, 1, {0}, 1);
    requeued.moment(1000, Moment::FIRST_STEP, 0, 1, [](Moment& moment) { moment.set_step(11); }).end(2000);
    const auto time = read_timeline(records().runs.at(0));
    ASSERT_TRUE(time);
    EXPECT_NEAR(of(time->ledger, Spent::checkpoint), 4, 1e-3);
    EXPECT_EQ(of(time->ledger, Spent::repeated), 0);
}

TEST_F(TimelineTest, AStepOfWhichAPartWasTakenAgainIsSplit) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0);
    file.sample(10'000, [](record::Sample& sample) {
        sample.add_compute_ms(10'000);
        sample.add_step_count(100);
    });
    file.end_of_generation(10'000, 0, "why", false).generation(10'000, 1, {0}, 1);
    file.moment(10'000, Moment::STARTED, 0, 1);
    file.moment(10'000, Moment::FIRST_STEP, 0, 1, [](Moment& moment) { moment.set_step(81); }).end(10'000);
    EXPECT_NEAR(of(timeline().ledger, Spent::repeated), 2, 1e-3);
}

TEST_F(TimelineTest, WithoutProgressItHangs) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0);
    for (int second = 1; second <= 100; ++second)
        file.sample(second * 1000, [](record::Sample& sample) { sample.add_communication_ms(1000); });
    file.moment(100'000, Moment::STILL, 0, 0, [](Moment& moment) { moment.set_still_ms(30'000); });
    file.moment(110'000, Moment::MOVES, 0).end(120'000);
    const Timeline time = timeline();
    EXPECT_NEAR(of(time.ledger, Spent::hang), 40, 1e-3);
    EXPECT_NEAR(of(time.ledger, Spent::communication), 70, 1e-3);
    EXPECT_NEAR(of(time.ledger, Spent::unlabelled), 10, 1e-3);
}

TEST_F(TimelineTest, AHangLastsUntilTheRanksAreEnded) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0);
    file.moment(50'000, Moment::STILL, 0, 0, [](Moment& moment) { moment.set_still_ms(30'000); });
    file.end_of_generation(60'000, 0, "rank 0 hangs", true)
        .moment(61'000, Moment::EXITED, 0, 0, [](Moment& moment) { moment.set_wait_status(9); });
    file.end(61'000);
    const Timeline time = timeline();
    EXPECT_NEAR(of(time.ledger, Spent::hang), 41, 1e-3);
    EXPECT_NEAR(of(time.ledger, Spent::unlabelled), 20, 1e-3);
    EXPECT_FALSE(goodput(time.ledger)) << "no rank has said what it did";
    EXPECT_EQ(records().runs[0].outcome.reason, "rank 0 hangs");
}

TEST_F(TimelineTest, ASpareNodesTasksHaveNoRankUntilItIsNeeded) {
    RecordedFile first(folder, 0, 1, 2);
    first.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0);
    first.end_of_generation(10'000, 0, "node0 is lost", false);
    RecordedFile spare(folder, 1, 1, 2);
    spare.generation(0, 0, {}, 1).generation(12'000, 1, {0}, 1).moment(13'000, Moment::STARTED, 0, 1);
    spare.moment(20'000, Moment::EXITED, 0, 1).end(20'000);

    const Timeline time = timeline();
    EXPECT_NEAR(of(time.nodes[1].tasks[0].ledger, Spent::spare), 12, 1e-3);
    EXPECT_NEAR(of(time.nodes[1].tasks[0].ledger, Spent::restart), 1, 1e-3);
    EXPECT_NEAR(of(time.nodes[1].tasks[0].ledger, Spent::unlabelled), 7, 1e-3);
    EXPECT_NEAR(of(time.nodes[0].tasks[0].ledger, Spent::unknown), 10, 1e-3)
        << "its record ends with the node";
}

// The wall clock of the second node is an hour wrong.
TEST_F(TimelineTest, TheBeginOfAGenerationAlignsClocks) {
    constexpr int64_t kUnix = 1'700'000'000'000;
    RecordedFile first(folder, 0, 1, 2, kUnix), second(folder, 1, 1, 2, kUnix + 3'600'000);
    first.generation(5'000, 0, {0}).note(6'000, "first").end(10'000);
    second.generation(4'000, 0, {1}).note(5'500, "second").end(9'000);
    const RecordedRun run = records().runs[0];
    EXPECT_DOUBLE_EQ(run.seconds, 10);
    EXPECT_DOUBLE_EQ(run.nodes[1].time.from, 1);
    ASSERT_EQ(run.events.size(), 2u);
    EXPECT_DOUBLE_EQ(run.events[1].at, 6.5);
    EXPECT_EQ(run.unix_ms, kUnix);
}

TEST_F(TimelineTest, WithoutACommonGenerationTheWallClockHasToDo) {
    RecordedFile first(folder, 0, 1, 2, 2'000'000), second(folder, 1, 1, 2, 1'990'000);
    first.end(1'000);
    second.end(1'000);
    const RecordedRun run = records().runs[0];
    EXPECT_DOUBLE_EQ(run.nodes[0].time.from, 10);
    EXPECT_DOUBLE_EQ(run.seconds, 11);
    EXPECT_EQ(run.unix_ms, 1'990'000);
}

TEST_F(TimelineTest, ANonZeroExitFailsTheRun) {
    RecordedFile file(folder, 0, 2);
    file.generation(0, 0, {0, 1});
    for (const uint32_t rank : {0, 1}) file.moment(0, Moment::STARTED, rank);
    file.moment(1000, Moment::EXITED, 0).moment(2000, Moment::EXITED, 1, 0, [](Moment& moment) {
        moment.set_wait_status(3 << 8);
    });
    file.end(2000);
    EXPECT_EQ(records().runs[0].outcome.how, RecordedRun::How::failed);
    EXPECT_EQ(records().runs[0].outcome.reason, "rank 1 on node0 exited with code 3");
    EXPECT_NEAR(of(timeline().nodes[0].tasks[0].ledger, Spent::ended), 1, 1e-3) << "while another rank runs";
}

// Slurm's launcher tells of its tasks before their node has a plan.
TEST_F(TimelineTest, WhatCameBeforeTheGenerationIsOfIt) {
    RecordedFile file(folder, 0, 1);
    file.moment(100, Moment::STARTED, 0)
        .generation(2000, 0, {0}, 1)
        .moment(9000, Moment::EXITED, 0)
        .end(9000);
    EXPECT_NEAR(of(timeline().ledger, Spent::start), 2, 1e-3);
    EXPECT_NEAR(of(timeline().ledger, Spent::unlabelled), 7, 1e-3);
}

TEST_F(TimelineTest, AGenerationThatTookNoStepThrowsNothingAway) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0);
    file.sample(10'000, [](record::Sample& sample) {
        sample.add_compute_ms(10'000);
        sample.add_step_count(100);
    });
    file.end_of_generation(10'000, 0, "why", false)
        .generation(10'000, 1, {0}, 1)
        .moment(10'000, Moment::STARTED, 0, 1);
    file.end_of_generation(12'000, 1, "why", false)
        .generation(12'000, 2, {0}, 1)
        .moment(12'000, Moment::STARTED, 0, 2);
    file.moment(13'000, Moment::FIRST_STEP, 0, 2, [](Moment& moment) { moment.set_step(51); }).end(13'000);
    EXPECT_NEAR(of(timeline().ledger, Spent::repeated), 5, 1e-3) << "the steps 51 to 100 of the first one";
}

TEST_F(TimelineTest, WhereNoOtherGenerationCameTheRunHasFailed) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0);
    file.end_of_generation(5000, 0, "rank 0 died", false)
        .end_of_generation(6000, 0, "no node is left", true)
        .end(7000);
    EXPECT_EQ(records().runs[0].outcome.how, RecordedRun::How::failed);
    EXPECT_EQ(records().runs[0].outcome.reason, "no node is left");
    EXPECT_NEAR(of(timeline().ledger, Spent::ended), 2, 1e-3);
}

TEST_F(TimelineTest, ARunThatANodeLeftMayHaveFinished) {
    RecordedFile lost(folder, 0, 1, 2), other(folder, 1, 1, 2);
    lost.generation(0, 0, {0}).moment(0, Moment::STARTED, 0);
    other.generation(0, 0, {1})
        .moment(0, Moment::STARTED, 1)
        .end_of_generation(5000, 0, "node0 is lost", false);
    other.generation(6000, 1, {0}, 1)
        .moment(6000, Moment::STARTED, 0, 1)
        .moment(9000, Moment::EXITED, 0, 1)
        .end(9000);
    EXPECT_EQ(records().runs[0].outcome.how, RecordedRun::How::finished);
}

// A node without a way to the others gives up; they go on without it.
TEST_F(TimelineTest, WhoWasCutOffDoesNotFailTheRun) {
    RecordedFile cut_off(folder, 0, 1, 2), other(folder, 1, 1, 2);
    cut_off.generation(0, 0, {0})
        .moment(0, Moment::STARTED, 0)
        .end_of_generation(4000, 0, "node0 lost the broker", true)
        .end(5000);
    other.generation(0, 0, {1})
        .moment(0, Moment::STARTED, 1)
        .end_of_generation(5000, 0, "node0 is lost", false);
    other.generation(6000, 1, {0}, 1)
        .moment(6000, Moment::STARTED, 0, 1)
        .moment(9000, Moment::EXITED, 0, 1)
        .end(9000);
    EXPECT_EQ(records().runs[0].outcome.how, RecordedRun::How::finished) << records().runs[0].outcome.reason;
}

TEST_F(TimelineTest, ARankWithoutAnExitHasNoKnownEnd) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1).moment(0, Moment::STARTED, 0).end(5000);
    EXPECT_EQ(records().runs[0].outcome.how, RecordedRun::How::unknown);
}

// SLURM_RESTART_COUNT is where its generations begin.
TEST_F(TimelineTest, TheStartOfARequeuedJobIsNoRestart) {
    RecordedFile file(folder, 0, 1);
    file.generation(1000, 3, {0}, 1).moment(2000, Moment::STARTED, 0, 3).end(5000);
    EXPECT_NEAR(of(timeline().ledger, Spent::start), 2, 1e-3);
    EXPECT_NEAR(of(timeline().ledger, Spent::restart), 0, 1e-3);
}

// The broker was lost, and nobody said that the generation ended.
TEST_F(TimelineTest, TheNextGenerationEndsTheOneBeforeIt) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1)
        .moment(0, Moment::STARTED, 0)
        .generation(5000, 1, {0}, 1)
        .moment(6000, Moment::STARTED, 0, 1)
        .end(8000);
    const RecordedRun run = records().runs[0];
    EXPECT_DOUBLE_EQ(run.generations[0].time.until, 5);
    EXPECT_TRUE(run.nodes[0].tasks[0].lives[0].is_followed);
    EXPECT_NEAR(of(timeline().ledger, Spent::restart), 1, 1e-3);
}

TEST_F(TimelineTest, WithoutAPlanItNeverBegan) {
    RecordedFile file(folder, 0, 2);
    file.note(1000, "no rank arrived").end(5000);
    EXPECT_EQ(records().runs[0].outcome.reason, "its ranks never started");
    EXPECT_NEAR(of(timeline().ledger, Spent::start), 10, 1e-3);
}

TEST_F(TimelineTest, WhoNeverCommunicatesSaysNothingOfOthersWaits) {
    RecordedFile file(folder, 0, 3);
    file.generation(0, 0, {0, 1, 2}, 3);
    for (const uint32_t rank : {0, 1, 2}) file.moment(0, Moment::STARTED, rank);
    file.sample(1000, [](record::Sample& sample) {
        for (const uint32_t ms : {1000, 700, 600}) sample.add_compute_ms(ms);
        for (const uint32_t ms : {0, 300, 400}) sample.add_communication_ms(ms);
    });
    file.end(1000);
    EXPECT_NEAR(of(timeline().ledger, Spent::communication), 0.6, 1e-3);
    EXPECT_NEAR(of(timeline().ledger, Spent::waiting), 0.1, 1e-3);
}

// With --dp-record-interval=60 a window of the report is shorter than a sample.
TEST_F(TimelineTest, WhatANodeSentIsSpreadOverTheTimeSinceTheSampleBefore) {
    RecordedFile file(folder, 0, 1);
    const auto minute = [](uint64_t kib, uint32_t mib) {
        return [=](record::Sample& sample) {
            sample.set_sent_kib(kib);
            sample.set_received_kib(2 * kib);
            sample.set_node_memory_mib(mib);
        };
    };
    file.generation(0, 0, {0}, 1).sample(60'000, minute(6'000, 100)).sample(120'000, minute(12'000, 200));
    // Traffic is the node's: another generation does not end it.
    file.generation(150'000, 1, {0}, 1).sample(180'000, minute(60'000, 300)).end(200'000);
    const Timeline time = timeline();
    ASSERT_DOUBLE_EQ(time.window, 1);
    const auto& windows = time.nodes[0].windows;
    for (size_t second = 0; second < 200; ++second) {
        const double kib = second < 60 ? 100 : second < 120 ? 200 : second < 180 ? 1000 : 0;
        ASSERT_NEAR(windows[second].sent_kib, kib, 1e-6) << second;
        ASSERT_NEAR(windows[second].received_kib, 2 * kib, 1e-6) << second;
    }
}

TEST_F(TimelineTest, MemoryIsThatOfTheSampleBeforeUntilThereIsAnother) {
    RecordedFile file(folder, 0, 1);
    const auto memory = [](uint32_t mib) {
        return [=](record::Sample& sample) { sample.set_node_memory_mib(mib); };
    };
    file.generation(0, 0, {0}, 1).sample(2'500, memory(100)).sample(5'500, memory(200)).end(9'000);
    const Timeline time = timeline();
    std::vector<uint32_t> mib;
    for (const auto& window : time.nodes[0].windows) mib.push_back(window.memory_mib.value_or(0));
    EXPECT_EQ(mib, (std::vector<uint32_t>{0, 0, 100, 100, 100, 200, 0, 0, 0}))
        << "nobody knows it before the first one and behind the last one";
}

// Whatever a file says, each task's time is somewhere, and only there.
TEST_F(TimelineTest, NothingIsLostInRandomRecords) {
    for (uint32_t seed = 1; seed <= 60; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
        {
            RecordedFile file(folder, 0, 3, 1);
            int64_t at = below(3000);
            uint32_t generation = 0;
            file.generation(at, generation, {0, 1, 2}, 3);
            for (int i = 0; i < 200; ++i) {
                at += below(2500);
                switch (below(8)) {
                    case 0:
                        file.end_of_generation(at, generation, "why", below(4) == 0);
                        break;
                    case 1:
                        if (below(3) == 0) file.generation(at, ++generation, {2, 0}, 2);
                        break;
                    case 2:
                        file.moment(at, static_cast<Moment::Kind>(below(14)), below(4), below(generation + 2),
                                    [&](Moment& moment) {
                                        moment.set_still_ms(below(20'000));
                                        moment.set_step(below(200));
                                    });
                        break;
                    default:
                        file.sample(at, [&](record::Sample& sample) {
                            for (uint32_t rank = 0; rank < below(5); ++rank) {
                                sample.add_compute_ms(below(1500));
                                sample.add_communication_ms(below(1500));
                                sample.add_step_count(static_cast<int32_t>(below(20)) - 4);
                                sample.add_steps(below(9));
                            }
                        });
                }
            }
            if (below(2)) file.end(at);
        }
        SCOPED_TRACE(seed);
        timeline();
    }
}

}  // namespace
}  // namespace dp
