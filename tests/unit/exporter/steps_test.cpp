// SPDX-License-Identifier: Apache-2.0
#include "exporter/steps.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace dp {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr auto kText = MetricsFormat::prometheus;

wire::NodeMetrics with_status(int64_t ready_ms = -1) {
    wire::NodeMetrics metrics;
    metrics.add_spent_ms(1500);
    auto& status = *metrics.mutable_status();
    status.set_all_hello_ms(20);
    if (ready_ms >= 0) status.set_all_ready_ms(ready_ms);
    return metrics;
}

size_t count(const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
}

TEST(StepsOfNode, EachFamilyHasTheSamplesOfAllSteps) {
    StepsOfNode steps("1.2");
    steps.add(1, "12.0", "alice");
    steps.add(2, "13.1", "bob");
    EXPECT_THAT(steps.page(kText, 0, Time(0)), Not(HasSubstr("alice"))) << "nothing is known of it yet";
    steps.note(1, with_status());
    wire::NodeMetrics of_a_relay;
    of_a_relay.add_spent_ms(2000);
    of_a_relay.set_tiles(4);
    steps.note(2, of_a_relay);
    const std::string page = steps.page(kText, 3, Time(0));
    EXPECT_THAT(page, HasSubstr("slurm_dp_rank_seconds_total{step=\"12.0\",slurm_job=\"12\",user=\"alice\","
                                "spent=\"compute\"} 1.500\n"
                                "slurm_dp_rank_seconds_total{step=\"13.1\",slurm_job=\"13\",user=\"bob\","
                                "spent=\"compute\"} 2.000\n"));
    EXPECT_THAT(page,
                HasSubstr("slurm_dp_restarts_total{step=\"12.0\",slurm_job=\"12\",user=\"alice\"} 0\n"));
    EXPECT_THAT(page, Not(HasSubstr("slurm_dp_restarts_total{step=\"13.1\"")))
        << "its broker is on another node";
    EXPECT_THAT(page, HasSubstr("slurm_dp_tiles{step=\"13.1\",slurm_job=\"13\",user=\"bob\"} 4\n"));
    EXPECT_THAT(page, HasSubstr("slurm_dp_exporter_steps 2\n"));
    EXPECT_THAT(page, HasSubstr("slurm_dp_exporter_unreachable_steps 3\n"));
    EXPECT_THAT(page, HasSubstr("slurm_dp_exporter_build_info{version=\"1.2\"} 1\n"));
    EXPECT_EQ(count(page, "# TYPE slurm_dp_rank_seconds_total counter\n"), 1u);
}

TEST(StepsOfNode, WhatAStepDiedOfStaysForAWhile) {
    StepsOfNode steps("");
    steps.add(1, "12.0", "alice");
    steps.note(1, with_status());
    wire::NodeMetrics last = with_status();
    last.set_is_last(true);
    last.mutable_status()->set_ending("rank 3 was killed");
    last.mutable_status()->mutable_totals()->set_signals(1);
    steps.note(1, last);
    steps.ended(1, Time(1000));
    const std::string death =
        "slurm_dp_deaths_total{step=\"12.0\",slurm_job=\"12\",user=\"alice\",kind=\"signal\"} 1\n";
    EXPECT_THAT(steps.page(kText, 0, Time(1000)), HasSubstr(death));
    EXPECT_THAT(steps.page(kText, 0, Time(1000)), HasSubstr("slurm_dp_exporter_steps 0\n"));
    EXPECT_THAT(steps.page(kText, 0, Time(1000) + kEndedStays), HasSubstr(death));
    const std::string later = steps.page(kText, 0, Time(1001) + kEndedStays);
    EXPECT_THAT(later, Not(HasSubstr("12.0")));
    EXPECT_THAT(later, HasSubstr("slurm_dp_exporter_ended_steps_total{how=\"failed\"} 1\n"));
}

TEST(StepsOfNode, AStepThatRunsAgainIsThereOnce) {
    StepsOfNode steps("");
    for (StepsOfNode::Connection run = 1; run <= 2; ++run) {
        steps.add(run, "12.0", "alice");
        steps.note(run, with_status());
        EXPECT_EQ(count(steps.page(kText, 0, Time(0)), "slurm_dp_age_seconds{step=\"12.0\""), 1u);
        steps.ended(run, Time(0));
        EXPECT_EQ(count(steps.page(kText, 0, Time(0)), "slurm_dp_age_seconds{step=\"12.0\""), 1u);
    }
    EXPECT_THAT(steps.page(kText, 0, Time(0)), HasSubstr("ended_steps_total{how=\"unknown\"} 2\n"));
}

TEST(StepsOfNode, StartsAreCountedOnceAndWhereTheBrokerIs) {
    StepsOfNode steps("");
    const auto run = [&](StepsOfNode::Connection id, const wire::NodeMetrics& metrics) {
        steps.add(id, std::to_string(id) + ".0", "alice");
        steps.note(id, metrics);
        steps.note(id, metrics);
        steps.ended(id, Time(0));
    };
    run(1, with_status(250));
    run(2, with_status(400'000));
    run(3, with_status());  // without a communicator
    run(4, wire::NodeMetrics());
    const std::string page = steps.page(kText, 0, Time(0));
    EXPECT_THAT(page, HasSubstr("slurm_dp_startup_seconds_bucket{le=\"0.01\"} 0\n"));
    EXPECT_THAT(page, HasSubstr("slurm_dp_startup_seconds_bucket{le=\"0.025\"} 1\n"));
    EXPECT_THAT(page, HasSubstr("slurm_dp_startup_seconds_bucket{le=\"0.25\"} 2\n"));
    EXPECT_THAT(page, HasSubstr("slurm_dp_startup_seconds_bucket{le=\"300\"} 2\n"));
    EXPECT_THAT(page, HasSubstr("slurm_dp_startup_seconds_bucket{le=\"+Inf\"} 3\n"
                                "slurm_dp_startup_seconds_sum 400.270\n"
                                "slurm_dp_startup_seconds_count 3\n"));
}

TEST(StepsOfNode, OpenMetricsNamesCountersWithoutTheirSuffixAndHasAnEnd) {
    StepsOfNode steps("");
    steps.add(1, "12.0", "alice");
    steps.note(1, with_status());
    const std::string page = steps.page(MetricsFormat::openmetrics, 0, Time(0));
    EXPECT_THAT(page, HasSubstr("# TYPE slurm_dp_restarts counter\nslurm_dp_restarts_total{"));
    EXPECT_TRUE(page.ends_with("\n# EOF\n"));
    EXPECT_THAT(steps.page(kText, 0, Time(0)), Not(HasSubstr("# EOF")));
}

TEST(StepsOfNode, OnlySoManyThatEndedStay) {
    StepsOfNode steps("");
    StepsOfNode::Connection id = 0;
    const auto run = [&](const std::string& user) {
        ++id;
        steps.add(id, std::to_string(id) + ".0", user);
        steps.note(id, with_status());
        steps.ended(id, Time(static_cast<int64_t>(id)));
    };
    run("alice");
    for (size_t i = 0; i < kMostEndedOfUser + 10; ++i) run("bob");
    std::string page = steps.page(kText, 0, Time(0));
    EXPECT_EQ(count(page, "slurm_dp_age_seconds{"), kMostEndedOfUser + 1) << "each user's";
    EXPECT_EQ(count(page, "age_seconds{step=\"1.0\""), 1u);
    EXPECT_EQ(count(page, "age_seconds{step=\"11.0\""), 0u);
    EXPECT_EQ(count(page, "age_seconds{step=\"12.0\""), 1u);
    for (size_t i = 0; i < kMostEnded; ++i) run("user" + std::to_string(i));
    page = steps.page(kText, 0, Time(0));
    EXPECT_EQ(count(page, "slurm_dp_age_seconds{"), kMostEnded);
    EXPECT_EQ(count(page, "age_seconds{step=\"1.0\""), 0u);
}

TEST(StepsOfNode, NoNumberOfADaemonSpoilsTheHistogram) {
    StepsOfNode steps("");
    for (const int64_t ms : {int64_t{-5}, int64_t{1} << 62}) {
        steps.add(1, "1.0", "bob");
        wire::NodeMetrics metrics;
        metrics.mutable_status()->set_all_ready_ms(ms);
        steps.note(1, metrics);
        steps.ended(1, Time(0));
    }
    EXPECT_EQ(count(steps.page(kText, 0, Time(0)), "slurm_dp_startup_seconds_sum 86400.000\n"), 1u);
}

}  // namespace
}  // namespace dp
