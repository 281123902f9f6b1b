// SPDX-License-Identifier: Apache-2.0
//
// What slurm-dp has set in the environments of ranks, in a record: what all have in common is there once, and nothing is lost.
#include "record/environment.hpp"

#include "dpctl/report.hpp"
#include "recorded.hpp"

namespace dp {
namespace {

using namespace std::string_view_literals;

TEST(RecordedEnvironments, AreReadAsTheyAreTold) {
    EXPECT_EQ(variables_of("\0RANK=3\0FILE=a b=c\0nothing\0X=\x1b"sv),
              (Variables{{"RANK", "3"}, {"FILE", "a b=c"}, {"X", "?"}}));
    EXPECT_TRUE(variables_of("").empty());
}

TEST(RecordedEnvironments, HaveInCommonWhatIsEqualInAll) {
    const auto entry =
        environment_entry(1, {{4, {{"RANK", "4"}, {"WORLD_SIZE", "8"}, {"OMP_NUM_THREADS", "2"}}},
                              {5, {{"RANK", "5"}, {"WORLD_SIZE", "8"}}}});
    const auto read = environment_of(entry.environment(), 2);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->common, (Variables{{"WORLD_SIZE", "8"}}));
    EXPECT_EQ(read->ranks, (std::map<uint32_t, Variables>{{4, {{"OMP_NUM_THREADS", "2"}, {"RANK", "4"}}},
                                                          {5, {{"RANK", "5"}}}}));
}

TEST(RecordedEnvironments, OfNodesAreMerged) {
    RecordedEnvironment all;
    all.merge({{{"WORLD_SIZE", "2"}, {"NODE_RANK", "0"}}, {{0, {{"RANK", "0"}}}}});
    all.merge({{{"WORLD_SIZE", "2"}, {"NODE_RANK", "1"}, {"MORE", "1"}}, {{1, {{"RANK", "1"}}}}});
    EXPECT_EQ(all.common, (Variables{{"WORLD_SIZE", "2"}}));
    EXPECT_EQ(all.ranks.at(0), (Variables{{"RANK", "0"}, {"NODE_RANK", "0"}}));
    EXPECT_EQ(all.ranks.at(1), (Variables{{"RANK", "1"}, {"NODE_RANK", "1"}, {"MORE", "1"}}));
}

TEST(RecordedEnvironments, MoreThanRanksCanHaveToldIsNotBelieved) {
    record::Environment said = environment_entry(0, {{0, {{"A", "1"}}}, {1, {}}}).environment();
    EXPECT_FALSE(environment_of(said, 1)) << "two ranks of one task";
    said.mutable_ranks(0)->add_variables()->set_value(std::string(9000, 'x'));
    EXPECT_FALSE(environment_of(said, 2));
    said.mutable_ranks(0)->clear_variables();
    said.add_common()->set_name(std::string(9000, 'x'));
    EXPECT_FALSE(environment_of(said, 2));
    // Small ones, each of which would become each rank's own.
    said.clear_common();
    for (int i = 0; i < 128; ++i) said.add_common()->set_name(std::to_string(i));
    EXPECT_TRUE(environment_of(said, 2));
    said.add_common()->set_name("128");
    EXPECT_FALSE(environment_of(said, 2));
}

class RecordedEnvironmentTest : public RecordTest {};

TEST_F(RecordedEnvironmentTest, OfTheLastGenerationIsShown) {
    RecordedFile first(folder, 0, 1, 2), second(folder, 1, 1, 2);
    first.generation(0, 0, {0}).add(1, environment_entry(0, {{0, {{"RANK", "0"}, {"GENERATION", "0"}}}}));
    first.generation(10, 1, {0}).add(11, environment_entry(1, {{0, {{"RANK", "0"}, {"GENERATION", "1"}}}}));
    second.generation(0, 0, {1}).add(1, environment_entry(0, {{1, {{"RANK", "1"}, {"GENERATION", "0"}}}}));
    const auto environment = records().runs[0].environment;
    EXPECT_EQ(environment.ranks.size(), 1u);
    EXPECT_EQ(environment.common.at("GENERATION"), "1");
}

// A process that outlives a restart has the environment that it was started with, and tells it once.
TEST_F(RecordedEnvironmentTest, OfWhoOutlivedARestartIsStillThere) {
    using record::Moment;
    RecordedFile first(folder, 0, 2, 3), second(folder, 1, 1, 3), gone(folder, 2, 1, 3);
    const auto process = [](int pid) { return [pid](Moment& moment) { moment.set_pid(pid); }; };
    first.moment(0, Moment::STARTED, 0, 0, process(10)).moment(0, Moment::STARTED, 1, 0, process(11));
    first.generation(0, 0, {0, 1}, 4)
        .add(1, environment_entry(0, {{0, {{"WORLD_SIZE", "4"}, {"RANK", "0"}}},
                                      {1, {{"WORLD_SIZE", "4"}, {"RANK", "1"}}}}))
        .generation(10'000, 1, {0, 1}, 3)
        .moment(10'500, Moment::STARTED, 0, 1, process(10))
        .moment(10'500, Moment::STARTED, 1, 1, process(12))
        .add(11'000, environment_entry(1, {{1, {{"WORLD_SIZE", "3"}, {"RANK", "1"}}}}));
    second.generation(0, 0, {3}, 4)
        .add(1, environment_entry(0, {{3, {{"WORLD_SIZE", "4"}, {"RANK", "3"}}}}))
        .generation(10'000, 1, {2}, 3);
    gone.generation(0, 0, {2}, 4).add(1, environment_entry(0, {{2, {{"WORLD_SIZE", "4"}, {"RANK", "2"}}}}));
    const auto environment = records().runs[0].environment;
    EXPECT_TRUE(environment.common.empty());
    EXPECT_EQ(environment.ranks, (std::map<uint32_t, Variables>{{0, {{"WORLD_SIZE", "4"}, {"RANK", "0"}}},
                                                                {1, {{"WORLD_SIZE", "3"}, {"RANK", "1"}}},
                                                                {2, {{"WORLD_SIZE", "4"}, {"RANK", "3"}}}}))
        << "the last one under the rank that it has now";
}

// `sh train.sh`: the node has started the shell; the rank says its own pid, and that is what it is known by later.
TEST_F(RecordedEnvironmentTest, OfWhoRunsInAShellAndOutlivedARestartIsStillThere) {
    using record::Moment;
    const auto process = [](int pid) { return [pid](Moment& moment) { moment.set_pid(pid); }; };
    RecordedFile(folder, 0, 1, 1)
        .generation(0, 0, {0}, 2)
        .moment(1, Moment::STARTED, 0, 0, process(10))
        .add(2, environment_entry(0, {{0, {{"RANK", "0"}}}}))
        .moment(3, Moment::HELLO, 0, 0, process(11))
        .generation(10'000, 1, {0}, 1)
        .moment(10'001, Moment::STARTED, 0, 1, process(11))
        .generation(20'000, 2, {0}, 1)
        .moment(20'001, Moment::STARTED, 0, 2, process(11));
    EXPECT_EQ(records().runs[0].environment.common, (Variables{{"RANK", "0"}}));
}

TEST_F(RecordedEnvironmentTest, OfAProcessThatIsGoneIsNotTheNextOnes) {
    RecordedFile(folder, 0, 2)
        .generation(0, 0, {0, 1})
        .add(1, environment_entry(0, {{0, {{"A", "0"}}}, {1, {{"A", "0"}}}}))
        .generation(10, 1, {0, 1})
        .moment(11, record::Moment::STARTED, 0, 1)
        .moment(11, record::Moment::STARTED, 1, 1)
        .add(12, environment_entry(1, {{0, {{"A", "1"}}}}));
    const Records all = records();
    EXPECT_EQ(all.runs[0].environment.ranks.size(), 1u);
    EXPECT_EQ(all.runs[0].environment.common, (Variables{{"A", "1"}}));
    Report report;
    report.runs.push_back({all.runs[0], *read_timeline(all.runs[0])});
    EXPECT_NE(report_text(report).find("1 variable is equal in the only one of 2 ranks of which it is known"),
              std::string::npos)
        << report_text(report);
}

TEST_F(RecordedEnvironmentTest, OfARankThatTheNodeHasNotIsNotBelieved) {
    RecordedFile(folder, 0, 2)
        .generation(0, 0, {0, 1})
        .add(1, environment_entry(0, {{1, {{"A", "1"}}}, {7, {{"A", "2"}}}}))
        .add(2, environment_entry(5, {{0, {{"A", "3"}}}}));
    const auto environment = records().runs[0].environment;
    EXPECT_EQ(environment.ranks.size(), 1u);
    EXPECT_EQ(environment.common, (Variables{{"A", "1"}}));
}

}  // namespace
}  // namespace dp
