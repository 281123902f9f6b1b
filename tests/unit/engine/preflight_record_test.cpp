// SPDX-License-Identifier: Apache-2.0
//
// What --dp-preflight finds on a node becomes a part of its record.
#include "engine/preflight_record.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "record/preflight.hpp"

namespace dp {
namespace {

wire::NodeExamination examination(std::initializer_list<wire::NodeExamination::Level> levels) {
    wire::NodeExamination said;
    auto& topic = *said.add_topics();
    for (const auto level : levels) {
        auto& finding = *topic.add_findings();
        finding.set_check("clock");
        finding.set_seen("it is late");
        finding.set_level(level);
    }
    return said;
}

RecordedPreflight read(std::initializer_list<record::Entry> entries) {
    RecordedPreflight all;
    for (const auto& entry : entries) all.add(entry.preflight());
    return all;
}

TEST(PreflightRecord, ItsVerdictIsThatOfTheWorstFinding) {
    using Examination = wire::NodeExamination;
    struct {
        wire::NodeExamination said;
        const char* verdict;
        size_t findings;
    } const cases[] = {{examination({}), "fit", 0},
                       {examination({Examination::FINE}), "fit", 0},
                       {examination({Examination::WARNING, Examination::FINE}), "fit, with remarks", 1},
                       {examination({Examination::FAULT, Examination::WARNING}), "not fit", 2}};
    for (const auto& one : cases) {
        const auto preflight = read({preflight_entry(one.said, std::chrono::milliseconds(1500))});
        EXPECT_STREQ(in_words(preflight.verdict), one.verdict);
        EXPECT_EQ(preflight.findings.size(), one.findings);
        EXPECT_DOUBLE_EQ(preflight.seconds, 1.5);
    }
    wire::NodeExamination nothing;
    nothing.set_problem("`dpctl examine` has failed");
    EXPECT_EQ(read({preflight_entry(nothing, {})}).findings,
              std::vector<std::string>{"not examined: `dpctl examine` has failed"});
}

TEST(PreflightRecord, MeasuresHaveTheirUnitsAndLinksComeLater) {
    wire::NodeExamination said;
    auto& measure = *said.add_measures();
    measure.set_name("memory");
    measure.set_value(12.5e9);
    wire::MeasuredLink link, broken;
    link.set_there(1e9);
    link.set_back(2e9);
    link.set_round_trip(30e-6);
    broken.set_problem("no answer");
    const auto preflight = read({preflight_entry(said, std::chrono::seconds(1)),
                                 preflight_entry(link, "10.0.0.2", std::chrono::seconds(2)),
                                 preflight_entry(broken, "10.0.0.3", std::chrono::seconds(7))});
    ASSERT_EQ(preflight.measures.size(), 4u);
    EXPECT_EQ(preflight.measures[0].unit, "GB/s");
    EXPECT_DOUBLE_EQ(preflight.measures[0].value, 12.5);
    EXPECT_EQ(preflight.measures[3].name, "link with 10.0.0.2, round trip");
    EXPECT_NEAR(preflight.measures[3].value, 30, 1e-9);
    EXPECT_EQ(preflight.findings, std::vector<std::string>{"link with 10.0.0.3: no answer"});
    EXPECT_DOUBLE_EQ(preflight.seconds, 7);
}

TEST(PreflightRecord, WhatCannotBeIsBoundedOrLeftOut) {
    record::Preflight hostile;
    hostile.set_duration_ms(INT64_MIN);
    hostile.set_verdict(static_cast<record::Preflight::Verdict>(77));
    for (size_t i = 0; i < 2 * kMostFindings; ++i) hostile.add_findings("\x1b");
    for (size_t i = 0; i < 2 * kMostMeasures; ++i) hostile.add_measures()->set_value(1);
    hostile.mutable_measures(0)->set_value(std::numeric_limits<double>::infinity());
    RecordedPreflight preflight;
    preflight.add(hostile);
    EXPECT_EQ(preflight.seconds, 0);
    EXPECT_STREQ(in_words(preflight.verdict), "fit");
    EXPECT_EQ(preflight.findings, std::vector<std::string>(kMostFindings, "?"));
    EXPECT_EQ(preflight.measures.size(), kMostMeasures);
}

}  // namespace
}  // namespace dp
