// SPDX-License-Identifier: Apache-2.0
//
// What the program has logged is in the report as it was: by rank and generation, NaN included, and not more than can be shown.
#include "record/scalars.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/phase_page.hpp"
#include "dpctl/report.hpp"
#include "recorded.hpp"

namespace dp {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class ScalarsTest : public RecordTest {
 protected:
    static auto logged(uint32_t task, uint32_t number, const std::string& name, uint64_t step, double value) {
        return [=](record::Sample& sample) {
            auto& one = *sample.add_scalars();
            one.set_task(task);
            one.set_number(number);
            one.set_name(name);
            one.set_step(step);
            one.set_value(value);
        };
    }
    Report report() const {
        Report all;
        for (RecordedRun& run : records().runs) {
            Timeline timeline = *read_timeline(run);
            all.runs.push_back({std::move(run), std::move(timeline)});
        }
        return all;
    }
};

TEST_F(ScalarsTest, GoFromTheRecordToTheReport) {
    RecordedFile(folder, 0, 2)
        .generation(0, 0, {0, 1})
        .sample(1000, logged(0, 0, "loss", 1, 2.5))
        .sample(2000, logged(0, 0, "", 40, 0.5))
        .sample(3000, logged(0, 0, "", 41, 0.75))
        .end_of_generation(3100, 0, "rank 1 died", false)
        .generation(4000, 1, {0, 1})
        .sample(5000, logged(0, 1, "loss", 31, 0.625))
        .end(6000);
    const Report all = report();
    const auto said = nlohmann::json::parse(report_json(all))["runs"][0]["scalars"];
    const auto& loss = said["series"].at(0);
    EXPECT_EQ(loss["name"], "loss");
    EXPECT_EQ(loss["first"], nlohmann::json({{"at", 1.0}, {"step", 1}, {"value", 2.5}}));
    EXPECT_EQ(loss["last"], nlohmann::json({{"at", 5.0}, {"step", 31}, {"value", 0.625}}));
    EXPECT_EQ(loss["lowest"]["step"], 40);
    EXPECT_EQ(loss["highest"]["value"], 2.5);
    ASSERT_EQ(loss["courses"].size(), 2u);
    EXPECT_EQ(loss["courses"][0], nlohmann::json({{"generation", 0},
                                                  {"rank", 0},
                                                  {"at", {1.0, 2.0, 3.0}},
                                                  {"step", {1, 40, 41}},
                                                  {"value", {2.5, 0.5, 0.75}}}));
    EXPECT_EQ(loss["courses"][1]["step"], nlohmann::json({31}));
    EXPECT_NE(
        report_text(all).find("loss     0  2.5 at step 1  0.625 at step 31  0.5 at step 40  2.5 at step 1"),
        std::string::npos)
        << report_text(all);
    EXPECT_EQ(ledger_text(all).find("loss"), std::string::npos);
}

TEST_F(ScalarsTest, WithoutAnyTheTextHasNoSuchPart) {
    RecordedFile(folder, 0, 1).generation(0, 0, {0}).end(1000);
    EXPECT_EQ(report_text(report()).find("scalars"), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(report_json(report()))["runs"][0]["scalars"]["series"].size(), 0u);
}

TEST_F(ScalarsTest, ValuesThatAreNoNumbersAreToldOfAnyRank) {
    RecordedFile(folder, 0, 2, 2)
        .generation(0, 0, {0, 1})
        .sample(1000, logged(0, 0, "loss", 1, 2.5))
        .sample(2000, logged(1, 0, "loss", 300, kNan))
        .sample(3000, logged(0, 0, "", 310, -HUGE_VAL))
        .sample(4000, logged(0, 0, "", 311, kNan))
        .end(5000);
    const auto said = nlohmann::json::parse(report_json(report()))["runs"][0]["scalars"];
    EXPECT_EQ(said["series"][0]["courses"][0]["value"], nlohmann::json({2.5, "-Infinity", "NaN"}));
    EXPECT_EQ(said["series"][0]["last"]["value"], "NaN");
    EXPECT_EQ(said["series"][0]["lowest"]["value"], 2.5) << "of numbers";
    ASSERT_EQ(said["not_finite"].size(), 2u);
    EXPECT_EQ(said["not_finite"][0]["rank"], 1);
    EXPECT_EQ(said["not_finite"][0]["step"], 300);
    EXPECT_EQ(said["not_finite"][1]["value"], "-Infinity") << "it stays none: told once";
    const std::string text = report_text(report());
    EXPECT_NE(text.find("    rank 1: loss is NaN at step 300\n    rank 0: loss is -Infinity at step 310\n"),
              std::string::npos)
        << text;
}

TEST_F(ScalarsTest, TheLowestRanksAreShownWhicheverNodeItIsOn) {
    const auto file = [&](uint32_t node, std::initializer_list<uint32_t> ranks, double value) {
        RecordedFile(folder, node, 1, 2)
            .generation(0, 0, ranks)
            .sample(1000, logged(0, 0, "loss", 1, value))
            .end(2000);
    };
    file(0, {1}, 10);
    file(1, {0}, 20);
    const auto scalars = report().runs.at(0).timeline.scalars;
    ASSERT_EQ(scalars.series.size(), 1u);
    ASSERT_EQ(scalars.series[0].courses.size(), 1u);
    EXPECT_EQ(scalars.series[0].courses[0].rank, 0u);
    EXPECT_EQ(scalars.series[0].courses[0].points, (std::vector<ScalarPoint>{{1, 1, 20}}));
    EXPECT_EQ(scalars.series[0].highest->value, 20);
}

TEST_F(ScalarsTest, WhereNanBeganIsKeptWhicheverNodeIsReadFirst) {
    constexpr int kNodes = 3, kRanks = 150;
    for (int node = 0; node < kNodes; ++node) {
        RecordedFile file(folder, static_cast<uint32_t>(node), kRanks, kNodes);
        std::vector<uint32_t> ranks;
        for (int rank = 0; rank < kRanks; ++rank)
            ranks.push_back(static_cast<uint32_t>(node * kRanks + rank));
        file.generation(0, 0, ranks, kNodes * kRanks);
        // It began on the last node, a second before the others.
        for (int rank = 0; rank < kRanks; ++rank)
            file.sample(node == kNodes - 1 ? 1000 : 2000,
                        logged(static_cast<uint32_t>(rank), 0, "loss", 7, kNan));
    }
    const auto scalars = report().runs.at(0).timeline.scalars;
    ASSERT_EQ(scalars.not_finite.size(), kMostNotFinite);
    EXPECT_EQ(scalars.not_finite.front().rank, 300u);
    EXPECT_EQ(scalars.not_finite[149].rank, 449u);
    EXPECT_EQ(scalars.not_finite_left_out, kNodes * kRanks - kMostNotFinite);
}

TEST_F(ScalarsTest, HostileOnesAreBoundedAndHaveNamesThatTheyCanHave) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1);
    for (int i = 0; i < 100; ++i) file.sample(i, logged(0, 0, "name " + std::to_string(i), 1, i));
    file.sample(200, logged(0, 0, "<b>\n", 1, 77)).sample(201, logged(0, 1, "", 1, 78));
    file.sample(202, logged(1, 0, "no such task", 1, 1)).sample(203, logged(0, 8, "no such number", 1, 1));
    file.sample(204, logged(0, 2, std::string(4000, 'x'), UINT64_MAX, 1));
    for (int i = 0; i < 500; ++i)
        file.sample(300 + i, logged(0, 0, "name 1", UINT64_MAX, i % 2 == 0 ? kNan : 0));
    const auto scalars = report().runs.at(0).timeline.scalars;
    EXPECT_EQ(scalars.series.size(), kMostScalarNames);
    EXPECT_EQ(scalars.left_out, 100 - kMostScalarNames + 1) << "and 77, of the last name that it can have";
    EXPECT_EQ(scalars.not_finite.size(), kMostNotFinite);
    EXPECT_EQ(scalars.not_finite_left_out, 250 - kMostNotFinite);
    for (const auto& one : scalars.series) EXPECT_TRUE(is_scalar_name(one.name));
    EXPECT_NE(report_text(report()).find("and 69 values of more than 32 names"), std::string::npos);
}

TEST_F(ScalarsTest, ManyPointsKeepTheShape) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1);
    constexpr int kMany = 20'000;
    for (int i = 0; i < kMany; ++i)
        file.sample(i * 10, logged(0, 0, i == 0 ? "loss" : "", static_cast<uint64_t>(i), i == 7777 ? 9 : 1));
    const auto series = report().runs.at(0).timeline.scalars.series.at(0);
    const auto& points = series.courses.at(0).points;
    EXPECT_LE(points.size(), kMostPoints);
    EXPECT_GE(points.size(), kMostPoints / 2);
    EXPECT_EQ(series.highest->step, 7777);
    EXPECT_EQ(std::ranges::count(points, 7777, &ScalarPoint::step), 1) << "a peak stays one";
    EXPECT_EQ(points.front().step, 0);
    EXPECT_EQ(points.back().step, kMany - 1);
    EXPECT_TRUE(std::ranges::is_sorted(points, {}, &ScalarPoint::step));
}

TEST(ThinnedPoints, AreTheLowestAndTheHighestInARowAndTheLast) {
    struct Case {
        std::vector<double> values, kept;
    };
    const double inf = HUGE_VAL;
    const Case cases[] = {
        {{}, {}},
        {{1}, {1}},
        {{1, 2, 3, 4, 5}, {1, 4, 5}},
        {{4, 1, 3, 2}, {4, 1, 2}},
        {{1, 9, 3, 2, 5, 5, 5, 5}, {1, 9, 5, 5}},
        {{2, inf, 1, 3}, {inf, 1, 3}},
    };
    for (const auto& [values, kept] : cases) {
        std::vector<PointOfGeneration> points;
        for (const double value : values) points.push_back({0, {0, 0, value}});
        std::vector<double> found;
        for (const auto& one : thinned(points)) found.push_back(one.point.value);
        EXPECT_EQ(found, kept) << testing::PrintToString(values);
    }
}

TEST(ThinnedPoints, KeepNan) {
    std::vector<PointOfGeneration> points;
    for (const double value : {3.0, kNan, 1.0, 2.0, 4.0}) points.push_back({0, {0, 0, value}});
    const auto kept = thinned(points);
    ASSERT_EQ(kept.size(), 3u);
    EXPECT_TRUE(std::isnan(kept[0].point.value));
    EXPECT_EQ(kept[1].point.value, 1);
}

}  // namespace
}  // namespace dp
