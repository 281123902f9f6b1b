// SPDX-License-Identifier: Apache-2.0
#include "engine/metrics.hpp"

#include <gtest/gtest.h>

#include "simulation.hpp"

namespace dp {
namespace {

wire::StepStatus ask(Simulation& s) {
    wire::FromRank message;
    message.mutable_status()->set_summary(true);
    s.from_rank(0, message);
    return s.told_status;
}

std::string text_of(const wire::StepStatus& status, MetricsFormat format = MetricsFormat::prometheus) {
    wire::NodeMetrics node;
    *node.mutable_status() = status;
    const StepMetrics step{label("step", "12.0"), &node};
    MetricsWriter out(format);
    write_steps({&step, 1}, out);
    return out.finish();
}

bool has(const std::string& text, const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(Metrics, CountRanksAndNodesByState) {
    Simulation s(3, 2, Time(60000));
    s.join(0);
    s.join(1);
    for (uint32_t rank = 0; rank < 4; ++rank) s.start(rank);
    for (uint32_t rank = 0; rank < 3; ++rank) s.hello(rank);
    s.arrive(0, 1);
    s.pass(Time(1500));
    const std::string text = text_of(ask(s));
    EXPECT_TRUE(has(text, "# TYPE slurm_dp_ranks gauge")) << text;
    EXPECT_TRUE(has(text, "slurm_dp_ranks{step=\"12.0\",state=\"hello\"} 3")) << text;
    EXPECT_TRUE(has(text, "slurm_dp_ranks{step=\"12.0\",state=\"started\"} 1"));
    EXPECT_TRUE(has(text, "slurm_dp_ranks{step=\"12.0\",state=\"not_started\"} 2"));
    EXPECT_TRUE(has(text, "slurm_dp_nodes{step=\"12.0\",state=\"here\"} 2"));
    EXPECT_TRUE(has(text, "slurm_dp_nodes{step=\"12.0\",state=\"not_connected\"} 1"));
    EXPECT_TRUE(has(text, "slurm_dp_meetings{step=\"12.0\"} 1"));
    EXPECT_TRUE(has(text, "slurm_dp_age_seconds{step=\"12.0\"} 1.500"));
    EXPECT_TRUE(has(text, "slurm_dp_ending{step=\"12.0\"} 0"));
    EXPECT_EQ(text.find("moment=\"hello\""), std::string::npos) << "not all have said it";
}

TEST(Metrics, NameTheSilentAndTheEnd) {
    Simulation s(2, 1);
    s.join_all();
    s.hello_all();
    s.frozen.insert(1);
    s.pass(Time(1500));
    std::string text = text_of(ask(s));
    EXPECT_TRUE(has(text, "slurm_dp_nodes{step=\"12.0\",state=\"silent\"} 1")) << text;
    EXPECT_NE(text.find("slurm_dp_node_silent_seconds{step=\"12.0\",node=\"gpu1\"} 1."), std::string::npos)
        << text;
    EXPECT_TRUE(has(text, "slurm_dp_start_seconds{step=\"12.0\",moment=\"hello\"} 0.000")) << text;
    s.exit(0, 3 << 8);
    text = text_of(ask(s));
    EXPECT_TRUE(has(text, "slurm_dp_ending{step=\"12.0\"} 1")) << text;
}

TEST(Metrics, DeathsAreCountedByWhatTheyWere) {
    Simulation s(3, 2, Time(60000), false, FailureAction::report);
    s.join_all();
    s.hello_all();
    s.exit(1, 3 << 8);
    s.exit(2, 9);
    s.pass(Time(1000));
    s.frozen.insert(2);
    s.pass(Time(40000));
    const std::string text = text_of(ask(s));
    EXPECT_TRUE(has(text, "# TYPE slurm_dp_deaths_total counter")) << text;
    for (const char* kind : {"exit", "signal", "node"})
        EXPECT_TRUE(has(text, std::string("slurm_dp_deaths_total{step=\"12.0\",kind=\"") + kind + "\"} 1"))
            << kind << "\n"
            << text;
    EXPECT_TRUE(has(text, "slurm_dp_deaths_total{step=\"12.0\",kind=\"other\"} 0"));
    EXPECT_TRUE(has(text, "slurm_dp_silences_total{step=\"12.0\"} 1"));
}

TEST(Metrics, LabelsAreEscaped) {
    wire::StepStatus status;
    auto* node = status.add_nodes();
    node->set_host("a\"b\\c\n");
    node->set_joined(true);
    node->set_silent_ms(1);
    EXPECT_NE(text_of(status).find("node=\"a\\\"b\\\\c?\""), std::string::npos);
}

}  // namespace
}  // namespace dp
