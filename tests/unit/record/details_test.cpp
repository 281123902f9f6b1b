// SPDX-License-Identifier: Apache-2.0
#include "record/details.hpp"

#include "record_details.hpp"

namespace dp {
namespace {

class DetailsTest : public RecordTest {
 protected:
    Details details(size_t most = kMostDetails) const {
        auto read = read_details(records().runs.at(0), most);
        EXPECT_TRUE(read) << read.error().message;
        return read ? std::move(*read) : Details();
    }
    // "rank 1 of 7.0": rank 1 was waited for in step 7's first communication; once for each that waited.
    std::vector<std::string> waits() const {
        const auto phases = details().phases;
        std::vector<std::string> found;
        for (const Wait& wait : waits_in(records().runs.at(0), phases)) {
            const RankPhase& one = phases[wait.for_whom];
            found.push_back("rank " + std::to_string(one.rank) + " of " + std::to_string(one.step) + "." +
                            std::to_string(one.round.value()));
            EXPECT_EQ(phases[wait.who].step, one.step);
            EXPECT_EQ(phases[wait.who].round, one.round);
            EXPECT_NE(phases[wait.who].rank, one.rank);
        }
        return found;
    }
    using Found = std::vector<std::string>;
};

// Two steps of which the second is seen from its beginning: it ends in a communication.
std::vector<Phase> steps(uint32_t compute_ms, uint32_t communication_ms) {
    return {{kCompute, 50}, {kCommunication, 10}, {kCompute, compute_ms}, {kCommunication, communication_ms}};
}

TEST_F(DetailsTest, ArePhasesInTheirPlace) {
    RecordedFile(folder, 0, 2)
        .generation(0, 0, {4, 5})
        .sample(1000, [](record::Sample& sample) { add_detail(sample, 1, 500, 7, steps(100, 200)); })
        .end(2000);
    const auto found = details().phases;
    ASSERT_EQ(found.size(), 4u);
    EXPECT_EQ(found[0].rank, 5u);
    EXPECT_EQ(found[0].task, 1u);
    EXPECT_NEAR(found[0].time.from, 0.5, 1e-9);
    EXPECT_NEAR(found[3].time.from, 0.66, 1e-9);
    EXPECT_NEAR(found[3].time.until, 0.86, 1e-9);
    EXPECT_EQ(found[3].what, Spent::communication);
    EXPECT_EQ(found[1].step, 7u);
    EXPECT_EQ(found[3].step, 8u);
    EXPECT_EQ(found[1].round, std::nullopt) << "nobody has seen where its step began";
    EXPECT_EQ(found[2].round, std::nullopt);
    EXPECT_EQ(found[3].round, 0u);
}

TEST_F(DetailsTest, TheRankWithTheShortestCommunicationWasWaitedFor) {
    RecordedFile(folder, 0, 3)
        .generation(0, 0, {0, 1, 2}, 3)
        .sample(1000,
                [](record::Sample& sample) {
                    add_detail(sample, 0, 900, 7, steps(100, 200));
                    add_detail(sample, 1, 900, 7, steps(290, 10));
                    add_detail(sample, 2, 900, 7, steps(250, 50));
                })
        .end(2000);
    EXPECT_EQ(waits(), (Found{"rank 1 of 8.0", "rank 1 of 8.0"}));
}

TEST_F(DetailsTest, WhoComesTogetherWaitsForNobody) {
    RecordedFile(folder, 0, 2)
        .generation(0, 0, {0, 1})
        .sample(1000,
                [](record::Sample& sample) {
                    add_detail(sample, 0, 900, 7, steps(100, 20));
                    add_detail(sample, 1, 900, 7, steps(100, 20));
                })
        .end(2000);
    EXPECT_EQ(waits(), Found());
}

TEST_F(DetailsTest, ClocksThatDifferDecideNothing) {
    for (const uint32_t node : {0u, 1u})
        RecordedFile(folder, node, 1)
            .generation(0, 0, {node})
            .sample(1000,
                    [&](record::Sample& sample) {
                        // Rank 1 is late; its clock says that it came first.
                        add_detail(sample, 0, node == 0 ? 500 : 700, 7,
                                   node == 0 ? steps(100, 50) : steps(140, 10));
                    })
            .end(2000);
    EXPECT_EQ(waits(), Found{"rank 1 of 8.0"});
    const auto found = details().phases;
    EXPECT_NEAR(found[3].time.until, 0.71, 1e-9);
    EXPECT_NEAR(found[7].time.until, 0.71, 1e-9) << "the communication ended on both at the same time";
    EXPECT_NEAR(found[4].time.from, 0.5, 1e-9);
}

TEST_F(DetailsTest, OnlyACommunicationOfAllRanksHasWaits) {
    const struct {
        uint32_t world_size;
        std::initializer_list<uint32_t> ranks;
        size_t waits;
    } cases[] = {{2, {0, 1}, 1}, {3, {0, 1}, 0}, {1, {0, 1}, 0}, {2, {1, 1}, 0}};
    for (const auto& one : cases) {
        RecordedFile(folder, 0, 2)
            .generation(0, 0, one.ranks, one.world_size)
            .sample(1000,
                    [](record::Sample& sample) {
                        add_detail(sample, 0, 900, 7, steps(100, 200));
                        add_detail(sample, 1, 900, 7, steps(290, 10));
                    })
            .end(2000);
        EXPECT_EQ(waits().size(), one.waits) << one.world_size << " " << *(one.ranks.end() - 1);
    }
}

TEST_F(DetailsTest, RoundsAreCountedFromWhereAStepBegins) {
    using Rounds = std::vector<std::optional<uint32_t>>;
    const Phase wait{kCommunication, 10}, work{0, 10}, step{kCompute, 10};
    const Phase no_time{kCommunication, 0};
    const struct {
        std::vector<Phase> before, after;
        uint64_t after_ms;
        Rounds rounds;
    } cases[] = {
        {{wait, work, wait}, {}, 0, {{}, {}}},  // no step begins
        {{wait, step, wait, work, wait, step, wait}, {}, 0, {{}, 0, 1, 0}},
        {{step, step, wait}, {work, wait, step, wait}, 970, {0, 1, 0}},  // nothing is missing between them
        {{step, step, wait}, {wait, wait, step, wait}, 900, {0, {}, {}, 0}},  // something is
        {{step, step, no_time, work, wait}, {}, 0, {1}},  // less than a microsecond is a round, too
    };
    for (const auto& one : cases) {
        RecordedFile(folder, 0, 1)
            .generation(0, 0, {0}, 1)
            .sample(1000, [&](record::Sample& sample) { add_detail(sample, 0, 1000, 7, one.before); })
            .sample(2000, [&](record::Sample& sample) {
                add_detail(sample, 0, 1000 + one.after_ms, 8, one.after);
            });
        Rounds rounds;
        for (const RankPhase& phase : details().phases)
            if (phase.what == Spent::communication) rounds.push_back(phase.round);
        EXPECT_EQ(rounds, one.rounds) << &one - cases;
    }
}

// A process that a restart has left alone goes on counting: what it says of a step is of another one.
TEST_F(DetailsTest, RanksThatHaveCountedDifferentlyAreNotCompared) {
    RecordedFile(folder, 0, 2)
        .generation(0, 0, {0, 1})
        .generation(100, 1, {0, 1})
        .sample(1000,
                [](record::Sample& sample) {
                    add_detail(sample, 0, 900, 7,
                               {{kCompute, 10},
                                {kCompute, 90},
                                {kCommunication, 100},
                                {kCompute, 90},
                                {kCommunication, 20}});
                    add_detail(sample, 1, 900, 8,
                               {{kCompute, 10},
                                {kCompute, 180},
                                {kCommunication, 10},
                                {kCompute, 10},
                                {kCommunication, 90}});
                })
        .end(2000);
    EXPECT_EQ(waits(), Found());
}

TEST_F(DetailsTest, OfTooManyTheLastSecondsAreLeftOutOnAllNodes) {
    for (const uint32_t node : {0u, 1u}) {
        RecordedFile file(folder, node, 1);
        file.generation(0, 0, {node});
        for (int64_t at = 1000; at <= 5000; at += 1000)
            file.sample(at, [](record::Sample& sample) { add_detail(sample, 0, 500, 7, steps(100, 50)); });
    }
    for (const auto& [most, seconds] :
         {std::pair<size_t, size_t>{40, 5}, {39, 4}, {16, 2}, {15, 1}, {7, 0}}) {
        const Details found = details(most);
        EXPECT_EQ(found.phases.size(), 8 * seconds) << most;
        const std::optional<int64_t> from =
            most < 40 ? std::optional(static_cast<int64_t>(seconds) + 1) : std::nullopt;
        EXPECT_EQ(found.left_out_from, from);
        EXPECT_EQ(std::ranges::count(found.phases, 1u, &RankPhase::node), static_cast<long>(4 * seconds));
    }
}

TEST_F(DetailsTest, OfHostileOnesRemainsWhatCanBe) {
    RecordedFile(folder, 0, 1)
        .sample(1,
                [](record::Sample& sample) {
                    add_detail(sample, 0, 1, 1, {{kCompute, 1}});
                })
        .generation(10, 0, {0}, 1)
        .sample(
            1000,
            [](record::Sample& sample) {
                add_detail(sample, 77, 5, 1, {{kCompute, 1}});
                sample.add_details()->set_before_us(INT64_MAX);
                sample.mutable_details(1)->add_length_us(5);
                add_detail(sample, 0, 500, UINT64_MAX, {{kCompute, 100}, {7, 100}, {kCompute, 4'000'000}});
                add_detail(sample, 0, 500, 0, {{kCompute, 100}});
                add_detail(sample, 0, 500, 0, {{kCompute, 600}});
            })
        .sample(2000,
                [](record::Sample& sample) {
                    add_detail(sample, 0, 1, 1, {{kCompute, 1}});
                    sample.mutable_details(0)->set_before_us(INT64_MIN);
                    sample.mutable_details(0)->set_length_us(0, UINT64_MAX);
                })
        .sample(3000,
                [](record::Sample& sample) {
                    add_detail(sample, 0, 1, 1, {{kCompute, 1}});
                    sample.mutable_details(0)->set_before_us(INT64_MAX);
                    sample.mutable_details(0)->set_length_us(0, UINT64_MAX);
                })
        .end(4000);
    // Before the generation, of a task that is not there, without a phase, of an unknown phase, overlapping: gone.
    const std::pair<double, double> times[] = {{0.5, 0.6}, {0.7, 1.001}, {2.001, 3.001}};
    const auto found = details().phases;
    ASSERT_EQ(found.size(), std::size(times));
    for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i].time.from, times[i].first, 1e-9) << i;
        EXPECT_NEAR(found[i].time.until, times[i].second, 1e-9) << i;
    }
}

TEST_F(DetailsTest, AFileThatHasGoneIsNamed) {
    const RecordedFile file(folder, 0, 1);
    const Records all = records();
    std::filesystem::remove(file.path());
    const auto read = read_details(all.runs.at(0));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message, file.path() + ": No such file or directory");
}

}  // namespace
}  // namespace dp
