// SPDX-License-Identifier: Apache-2.0
#include "engine/rank_facts.hpp"

#include <gtest/gtest.h>

#include <string>

#include "common/hostlist.hpp"
#include "simulation.hpp"

namespace dp {
namespace {

wire::Fact fact(const std::string& name, const std::string& value, wire::Fact::Rule rule = wire::Fact::SAME) {
    wire::Fact made;
    made.set_name(name);
    made.set_value(value);
    made.set_rule(rule);
    made.set_remedy("do this");
    return made;
}

// Two ranks a node.
std::string hosts_of(std::span<const uint32_t> ranks) {
    std::vector<std::string> hosts;
    for (uint32_t rank : ranks)
        if (std::string host = "gpu" + std::to_string(rank / 2); hosts.empty() || hosts.back() != host)
            hosts.push_back(host);
    return compress_hostlist(hosts);
}

using ByRank = std::map<uint32_t, std::vector<wire::Fact>>;

Comparison compared(const ByRank& by_rank) {
    Comparison comparison;
    // The last ranks first: they come in any order.
    for (auto it = by_rank.rbegin(); it != by_rank.rend(); ++it) {
        wire::Arrive arrive;
        for (const auto& one : it->second) *arrive.add_facts() = one;
        comparison.add(it->first, arrive.facts());
    }
    return comparison;
}

std::optional<std::string> disagreement(const ByRank& by_rank, const HostsOf& hosts) {
    return compared(by_rank).disagreement(hosts);
}

TEST(RankFacts, FactsThatFitAreSilent) {
    EXPECT_EQ(disagreement({}, hosts_of), std::nullopt);
    EXPECT_EQ(disagreement({{0, {fact("version", "2")}}, {1, {fact("version", "2")}}}, hosts_of),
              std::nullopt);
    const auto distinct = wire::Fact::DISTINCT;
    EXPECT_EQ(
        disagreement({{0, {fact("device", "a", distinct)}}, {1, {fact("device", "b", distinct)}}}, hosts_of),
        std::nullopt);
    // Some have nothing to say.
    EXPECT_EQ(disagreement({{0, {fact("version", "2")}}, {1, {}}}, hosts_of), std::nullopt);
}

TEST(RankFacts, WhoDiffersIsNamedAfterTheMany) {
    const ByRank facts = {{0, {fact("NCCL's version", "2.18.5")}},
                          {1, {fact("NCCL's version", "2.28.9")}},
                          {2, {fact("NCCL's version", "2.28.9")}},
                          {3, {fact("NCCL's version", "2.28.9")}}};
    EXPECT_EQ(disagreement(facts, hosts_of),
              "NCCL's version differs: 2.28.9 on ranks 1-3 (gpu[0-1]), 2.18.5 on rank 0 (gpu0); do this");
}

TEST(RankFacts, WhoSharesWhatEachMustHaveIsNamed) {
    const auto distinct = wire::Fact::DISTINCT;
    const ByRank facts = {{1, {fact("device", "0:17", distinct)}},
                          {2, {fact("device", "1:17", distinct)}},
                          {3, {fact("device", "1:17", distinct)}}};
    EXPECT_EQ(disagreement(facts, hosts_of), "ranks 2-3 (gpu1) have the same device, 1:17; do this");
}

TEST(RankFacts, WhoHasGoneIsNotCompared) {
    Comparison comparison = compared({{0, {fact("v", "1")}}, {1, {fact("v", "2")}}});
    EXPECT_NE(comparison.disagreement(hosts_of), std::nullopt);
    comparison.remove(1);
    EXPECT_EQ(comparison.disagreement(hosts_of), std::nullopt);
}

TEST(RankFacts, ManyValuesAreCutAndUnprintableOnesHarmless) {
    ByRank facts;
    for (uint32_t rank = 0; rank < 9; ++rank) facts[rank] = {fact("v", "\x1b[" + std::to_string(rank))};
    EXPECT_EQ(disagreement(facts, hosts_of),
              "v differs: ?[0 on rank 0 (gpu0), ?[1 on rank 1 (gpu0), ?[2 on rank 2 (gpu1), ?[3 on rank 3 "
              "(gpu1), ...; "
              "do this");
}

TEST(RankFacts, TooMuchIsRefused) {
    wire::Arrive arrive;
    *arrive.add_facts() = fact("v", std::string(kMaxFactBytes, 'x'));
    EXPECT_EQ(unfit(arrive.facts()), std::nullopt);
    *arrive.add_facts() = fact("v", std::string(kMaxFactBytes + 1, 'x'));
    EXPECT_NE(unfit(arrive.facts()), std::nullopt);
    arrive.clear_facts();
    for (int i = 0; i <= kMaxFacts; ++i) *arrive.add_facts() = fact("v", "x");
    EXPECT_NE(unfit(arrive.facts()), std::nullopt);
}

TEST(RankFacts, FailsTheMeetingForAllAndTheNextOneMayBeGood) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    for (uint64_t round = 0; round < 2; ++round)
        for (uint32_t rank = 0; rank < 4; ++rank) {
            wire::Request request;
            request.mutable_arrive()->set_group("world");
            request.mutable_arrive()->set_sequence(round);
            *request.mutable_arrive()->add_facts() = fact("version", rank == 3 && round == 0 ? "1" : "2");
            s.request(rank, round, request);
        }
    for (auto& rank : s.ranks) {
        EXPECT_EQ(rank.replies[0].status(), wire::INVALID);
        EXPECT_EQ(rank.replies[0].error(),
                  "version differs: 2 on ranks 0-2 (gpu[0-1]), 1 on rank 3 (gpu1); do this");
        EXPECT_EQ(rank.replies[1].status(), wire::OK);
    }
}

TEST(Fact, MayBeAnyBytes) {
    wire::Arrive sent, come;
    *sent.add_facts() = fact("the \xe9tat", "/tmp/\xfc");
    ASSERT_TRUE(come.ParseFromString(sent.SerializeAsString()));
    EXPECT_EQ(come.facts(0).value(), "/tmp/\xfc");
}

}  // namespace
}  // namespace dp
