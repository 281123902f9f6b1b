// SPDX-License-Identifier: Apache-2.0
//
// What of a node's messages is recorded, and what never is.
#include "record/entries.hpp"

#include <gtest/gtest.h>

#include "common/slurm_patterns.hpp"
#include "framing.hpp"

namespace dp {
namespace {

using record::Moment;

std::vector<record::Entry> entries_of(const std::function<void(wire::RankEvent&)>& fill) {
    wire::RankEvent event;
    event.set_rank(5);
    fill(event);
    wire::FromNode message = wrap(&wire::FromNode::mutable_rank, std::move(event));
    message.set_generation(2);
    return dp::entries_of(message);
}

TEST(RecordEntries, EveryEventOfARankIsAMoment) {
    const std::pair<Moment::Kind, std::function<void(wire::RankEvent&)>> cases[] = {
        {Moment::STARTED, [](auto& event) { event.set_started(4711); }},
        {Moment::EXITED, [](auto& event) { event.set_exited(9); }},
        {Moment::GOODBYE, [](auto& event) { event.set_goodbye(true); }},
        {Moment::VANISHED, [](auto& event) { event.set_vanished(true); }},
        {Moment::READY, [](auto& event) { event.set_ready(true); }},
        {Moment::STOPPED, [](auto& event) { event.set_stopped(true); }},
        {Moment::CONTINUED, [](auto& event) { event.set_stopped(false); }},
        {Moment::TOLD_TO_END, [](auto& event) { event.set_told_to_end(true); }},
        {Moment::FIRST_STEP, [](auto& event) { event.set_first_step(12); }},
        {Moment::STILL, [](auto& event) { event.mutable_still()->set_for_ms(30'000); }},
        {Moment::MOVES, [](auto& event) { event.set_moves(true); }},
    };
    for (const auto& [kind, fill] : cases) {
        const auto entries = entries_of(fill);
        ASSERT_EQ(entries.size(), 1u) << kind;
        EXPECT_EQ(entries[0].moment().kind(), kind);
        EXPECT_EQ(entries[0].moment().rank(), 5u);
        EXPECT_EQ(entries[0].moment().generation(), 2u);
    }
    EXPECT_EQ(entries_of(cases[0].second)[0].moment().pid(), 4711);
    EXPECT_EQ(entries_of(cases[1].second)[0].moment().wait_status(), 9);
    EXPECT_EQ(entries_of(cases[8].second)[0].moment().step(), 12u);
    EXPECT_EQ(entries_of(cases[9].second)[0].moment().still_ms(), 30'000);
}

TEST(RecordEntries, HellosThatWereSentTogetherAreMomentsOfTheirOwn) {
    wire::FromNode message;
    for (const uint32_t rank : {3, 4}) message.mutable_hellos()->add_ranks()->set_rank(rank);
    const auto entries = dp::entries_of(message);
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[1].moment().kind(), Moment::HELLO);
    EXPECT_EQ(entries[1].moment().rank(), 4u);
}

TEST(RecordEntries, OtherMessagesAreNone) {
    EXPECT_TRUE(dp::entries_of(wrap(&wire::FromNode::mutable_leave)).empty());
}

TEST(RecordEntries, TheEndOfRanksSaysWhy) {
    wire::Abort why;
    why.set_reason("rank 5 on node02 was killed by signal 9 (SIGKILL)");
    why.add_dead(5);
    const auto last = generation_end_entry(3, why, true);
    EXPECT_EQ(last.generation_end().generation(), 3u);
    EXPECT_EQ(last.generation_end().reason(), why.reason());
    EXPECT_EQ(last.generation_end().dead(0), 5u);
    EXPECT_TRUE(last.generation_end().is_last());
}

TEST(RecordEntries, ABeginHasTheOptionsAndNoSecret) {
    DaemonConfig config;
    config.host = "node01";
    config.job_id = 12;
    config.tasks = 4;
    config.secret = std::string(64, 'f');
    config.settings = with_defaults({});
    const auto entry = begin_entry(config, "0123456789abcdef", "1.0", 1000);
    const auto has_timeout = [](const auto& setting) {
        return setting.option() == "dp-timeout" && setting.value() == "300";
    };
    EXPECT_TRUE(std::ranges::any_of(entry.begin().settings(), has_timeout));
    EXPECT_EQ(entry.SerializeAsString().find("ffff"), std::string::npos);
}

TEST(RecordFiles, AreNamedByStepRunAndNode) {
    NodeOfStep node;
    node.job_id = 12;
    node.step_id = 3;
    node.host = "gpu01";
    node.node_list = "gpu[01-02]";
    EXPECT_EQ(record_file_name(node, "0123456789abcdef"), "12.3-0123456789abcdef-gpu01.dprecord");
    const std::map<char, std::string> values = {{'j', "12"}, {'s', "3"}, {'N', "gpu01"}};
    EXPECT_EQ(fill_in("/records/%j/%s-%N/100%%/%q%", values), "/records/12/3-gpu01/100%/%q%");
    node.node_list.clear();
    node.node_rank = 5;
    EXPECT_EQ(record_file_name(node, "0123456789abcdef"), "12.3+5-0123456789abcdef-gpu01.dprecord");
    node.job_id = 0;
    node.host = "a/b";
    EXPECT_EQ(record_file_name(node, "0123456789abcdef"), "launch-0123456789abcdef-a_b.dprecord");
}

}  // namespace
}  // namespace dp
