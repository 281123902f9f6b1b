// SPDX-License-Identifier: Apache-2.0
//
// --dp-preflight: which nodes are not fit, what is said of them, and with whom the step begins.
#include "engine/node_fitness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "simulation.hpp"

namespace dp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Said {
    std::vector<std::pair<std::string, std::string>> faults;  // check, what was seen
    std::map<std::string, std::string> properties;
    std::string problem;
    uint16_t link_port = 0;
    double memory = 0;  // bytes per second
};

wire::NodeExamination message_of(const Said& node) {
    wire::NodeExamination said;
    said.set_problem(node.problem);
    if (!node.problem.empty()) return said;
    auto& topic = *said.add_topics();
    topic.add_findings()->set_check("clock");
    auto& warning = *topic.add_findings();
    warning.set_check("core files");
    warning.set_level(wire::NodeExamination::WARNING);
    for (const auto& [check, seen] : node.faults) {
        auto& fault = *topic.add_findings();
        fault.set_check(check);
        fault.set_seen(seen);
        fault.set_level(wire::NodeExamination::FAULT);
    }
    for (const auto& [name, value] : node.properties) {
        auto& property = *said.add_properties();
        property.set_name(name);
        property.set_value(value);
    }
    said.set_link_port(node.link_port);
    said.set_link_token(7);
    auto& measure = *said.add_measures();
    measure.set_name("memory");
    measure.set_value(node.memory);
    return said;
}

Simulation step_with(Preflight preflight, uint32_t nodes, FailureAction action,
                     const Settings& settings = {}) {
    Settings more = settings;
    more.preflight = preflight;
    return Simulation(nodes, 2, Time(10000), false, action, more);
}

void examined(Simulation& s, uint32_t node, const Said& found) {
    s.answer(node, wrap(&wire::FromNode::mutable_examination, message_of(found)));
}

const Said kFine = {{}, {{"driver", "580.65"}, {"MTU", "9000"}}, ""};
const Said kFull = {{{"temporary files", "/tmp: full"}}, kFine.properties, ""};
Said with(const std::string& name, const std::string& value) {
    Said node = kFine;
    node.properties[name] = value;
    return node;
}

TEST(NodeFitness, JudgesTheNodesByThemselvesAndBesideEachOther) {
    const std::string mtu_of_one = "MTU: gpu1 has 1280; 3 others have 9000";
    const struct {
        std::vector<Said> nodes;
        std::map<uint32_t, std::string> unfit;
        std::vector<std::string> remarks;
        bool disagree;
    } cases[] = {
        {{kFine, kFine, kFine, kFine}, {}, {}, false},
        {{kFine, kFull, kFine, kFine}, {{1, "temporary files: /tmp: full"}}, {}, false},
        {{kFine, with("MTU", "1280"), kFine, kFine}, {{1, mtu_of_one}}, {}, false},
        // With these, ranks work all the same.
        {{kFine, kFine, kFine, with("driver", "570.12")},
         {},
         {"driver: gpu3 has 570.12; 3 others have 580.65; CUDA's features are those of the oldest driver, "
          "and failures "
          "depend on the node"},
         false},
        {{kFine, kFine, kFine, {{}, {}, "no dpctl"}}, {}, {"gpu3 was not examined: no dpctl"}, false},
        // Nobody knows whose fault it is.
        {{kFine, kFine, with("MTU", "1280"), with("MTU", "1280")}, {}, {}, true},
        {{with("MTU", "1500"), with("MTU", "1280"), kFine, with("MTU", "4200")}, {}, {}, true},
    };
    for (const auto& c : cases) {
        Simulation s = step_with(Preflight::quick, 4, FailureAction::abort);
        s.join_all();
        NodeExaminations examinations;
        for (uint32_t node = 0; node < 4; ++node) {
            EXPECT_FALSE(examinations.complete(s.broker->membership()));
            examinations.note(node, message_of(c.nodes[node]));
        }
        EXPECT_TRUE(examinations.complete(s.broker->membership()));
        const Fitness fitness = examinations.judge(s.broker->membership());
        EXPECT_EQ(fitness.unfit, c.unfit);
        EXPECT_EQ(fitness.remarks, c.remarks);
        EXPECT_EQ(!fitness.disagreement.empty(), c.disagree) << fitness.disagreement;
    }
}

TEST(NodeFitness, SaysWhomToExclude) {
    Simulation s = step_with(Preflight::quick, 4, FailureAction::abort);
    s.join_all();
    const auto said = [&](std::map<uint32_t, std::string> unfit, const std::string& disagreement = "") {
        return refusal({std::move(unfit), disagreement, {}}, s.broker->membership());
    };
    EXPECT_EQ(said({{1, "/tmp: full"}}),
              "1 node is not fit for this step (--dp-preflight): gpu1: /tmp: full; start without it: "
              "--exclude=gpu1; "
              "to start all the same: --dp-preflight=off");
    EXPECT_EQ(said({{1, "a"}, {2, "b"}, {3, "a"}}),
              "3 nodes are not fit for this step (--dp-preflight): gpu[1,3]: a; gpu2: b; start without them: "
              "--exclude=gpu[1-3]; to start all the same: --dp-preflight=off");
    EXPECT_EQ(said({{0, "a"}, {1, "a"}, {2, "a"}, {3, "a"}}),
              "no node is fit for this step (--dp-preflight): gpu[0-3]: a; `dpctl doctor` there says what "
              "mends it; to "
              "start all the same: --dp-preflight=off");
    EXPECT_THAT(said({}, "MTU: gpu1 has 1280; 1 other has 1500"), HasSubstr("--constraint"));
    Said many = kFine;
    for (const char* check : {"a", "b", "c", "d", "e"}) many.faults.emplace_back(check, "x\n\033[0m");
    NodeExaminations examinations;
    examinations.note(0, message_of(many));
    EXPECT_EQ(examinations.judge(s.broker->membership()).unfit.at(0),
              "a: x??[0m, b: x??[0m, c: x??[0m and 2 more");
}

TEST(NodePreflight, RanksStartOnceAllNodesAreFit) {
    Simulation s = step_with(Preflight::quick, 2, FailureAction::abort);
    examined(s, 1, kFine);  // before it has found the broker
    s.join_all();
    s.pass(Time(100));
    EXPECT_FALSE(s.plans[0] || s.plans[1]);
    examined(s, 0, with("driver", "570.12"));
    EXPECT_TRUE(s.plans[0] && s.plans[1]);
    EXPECT_THAT(s.log, ElementsAre(HasSubstr("--dp-preflight: driver: gpu1 has 580.65; 1 other has 570.12")));
    examined(s, 1, kFull);  // too late
    EXPECT_FALSE(s.no_plans[0]);

    Simulation off = step_with(Preflight::off, 2, FailureAction::abort);
    off.join_all();
    EXPECT_TRUE(off.plans[0] && off.plans[1]);
}

TEST(NodePreflight, AStepWithAnUnfitNodeIsRefused) {
    Simulation s = step_with(Preflight::quick, 2, FailureAction::abort);
    s.join_all();
    examined(s, 0, kFine);
    examined(s, 1, kFull);
    ASSERT_TRUE(s.no_plans[0] && s.no_plans[1]);
    EXPECT_THAT(s.log.back(),
                HasSubstr("gpu1: temporary files: /tmp: full; start without it: --exclude=gpu1;"));
    EXPECT_EQ(*s.no_plans[0], "") << "the broker has told it";
    EXPECT_EQ(*s.no_plans[1], "");
    EXPECT_FALSE(s.plans[0] || s.plans[1]);
}

TEST(NodePreflight, ANodeThatSaysNothingIsNotFit) {
    Simulation s = step_with(Preflight::quick, 2, FailureAction::abort);
    s.join_all();
    examined(s, 0, kFine);
    s.pass(kExaminationsCome - Time(100));
    EXPECT_FALSE(s.no_plans[0]);
    s.pass(Time(200));
    ASSERT_TRUE(s.no_plans[0]);
    EXPECT_THAT(s.log.back(), HasSubstr("gpu1: it has not said within 43 s whether it is fit"));
}

TEST(NodePreflight, ASpareTakesThePlaceOfAnUnfitNode) {
    Settings spare;
    spare.spares = 1;
    Simulation s = step_with(Preflight::quick, 4, FailureAction::restart, spare);
    s.join_all();
    for (uint32_t node : {0, 1, 2, 3}) examined(s, node, node == 1 ? kFull : kFine);
    for (const auto& plan : s.plans) ASSERT_TRUE(plan);
    EXPECT_THAT(s.plans[0]->place->ranks, ElementsAre(0, 1));
    EXPECT_TRUE(s.plans[1]->place->ranks.empty());
    EXPECT_THAT(s.plans[3]->place->ranks, ElementsAre(2, 3));
    EXPECT_EQ(s.plans[3]->place->node_rank, 1U);
    EXPECT_EQ(s.plans[3]->generation, 0U);
    EXPECT_THAT(s.log,
                ElementsAre("not fit for this step (--dp-preflight): gpu1: temporary files: /tmp: full; it "
                            "begins with spare node gpu3"));
    s.start_all();
    s.hello_all();
    for (uint32_t rank = 0; rank < 6; ++rank) s.arrive(rank, 1);
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.replies.at(1).status(), wire::OK);
    // The unfit one is no spare.
    EXPECT_EQ(s.broker->membership().spares(), 0U);
    s.cut(2);
    s.pass(Time(150));
    EXPECT_TRUE(s.logged("no spare node is left, and without --dp-min-nodes the world cannot shrink"));
}

TEST(NodePreflight, WithoutASpareTheWorldIsSmallerIfItMay) {
    Settings fewer;
    fewer.min_nodes = 2;
    Simulation s = step_with(Preflight::quick, 3, FailureAction::restart, fewer);
    s.join_all();
    for (uint32_t node : {0, 1, 2}) examined(s, node, node == 1 ? kFull : kFine);
    for (const auto& plan : s.plans) ASSERT_TRUE(plan);
    EXPECT_EQ(s.plans[0]->place->world_size, 4U);
    EXPECT_THAT(s.plans[2]->place->ranks, ElementsAre(2, 3));
    EXPECT_TRUE(s.logged("it begins with 4 ranks on 2 nodes"));
}

// It holds MASTER_PORT.
TEST(NodePreflight, TheNodeOfRankZeroCannotBeReplaced) {
    Settings spare;
    spare.spares = 1;
    Simulation s = step_with(Preflight::quick, 3, FailureAction::restart, spare);
    s.join_all();
    for (uint32_t node : {0, 1, 2}) examined(s, node, node == 0 ? kFull : kFine);
    ASSERT_TRUE(s.no_plans[0]);
    EXPECT_THAT(s.log.back(), HasSubstr("--exclude=gpu0"));
}

TEST(NodePreflight, ASpareThatIsNotFitIsNoSpare) {
    Settings spare;
    spare.spares = 1;
    Simulation s = step_with(Preflight::quick, 3, FailureAction::restart, spare);
    s.join_all();
    for (uint32_t node : {0, 1, 2}) examined(s, node, node == 2 ? kFull : kFine);
    ASSERT_TRUE(s.plans[0] && s.plans[2]);
    EXPECT_TRUE(s.plans[2]->place->ranks.empty());
    EXPECT_TRUE(s.logged("gpu2: temporary files: /tmp: full; it begins without"));
    EXPECT_EQ(s.broker->membership().spares(), 0U);
}

// ---- full ----

// What its partner finds.
void measured(Simulation& s, uint32_t from, double bytes_per_second, uint32_t round) {
    wire::MeasuredLink link;
    link.set_there(bytes_per_second);
    link.set_back(bytes_per_second);
    link.set_round(round);
    s.answer(from, wrap(&wire::FromNode::mutable_measured_link, std::move(link)));
}

Said with_links(uint32_t node, double memory = 10e9) {
    Said said = kFine;
    said.link_port = static_cast<uint16_t>(40000 + node);
    said.memory = memory;
    return said;
}

// Each measures with whom it is asked to, until nobody is. `speed`: of the link between two nodes.
void measure_all(Simulation& s, const std::function<double(uint32_t, uint32_t)>& speed) {
    std::map<uint16_t, uint32_t> node_at;
    for (uint32_t node = 0; node < s.nodes.size(); ++node)
        node_at[static_cast<uint16_t>(40000 + node)] = node;
    for (bool any = true; any;) {
        any = false;
        for (const auto& [node, link] : std::exchange(s.links_to_measure, {})) {
            any = true;
            if (link.serve()) {
                measured(s, node, 0, link.round());
                continue;
            }
            EXPECT_EQ(link.token(), 7U);
            measured(s, node, speed(node, node_at.at(static_cast<uint16_t>(link.port()))), link.round());
        }
    }
}

TEST(LinkRounds, EachPairIsMeasuredOnceAndWhoIsSilentHasNoLink) {
    LinkRounds rounds({{0, "a", 1, 7}, {2, "b", 2, 7}, {5, "c", 3, 7}, {6, "d", 4, 7}});
    EXPECT_EQ(rounds.rounds(), 3U);
    Time now(0);
    std::set<std::pair<uint32_t, std::string>> pairs;
    for (uint32_t round = 1; round <= 3; ++round) {
        const auto messages = rounds.begin(now);
        ASSERT_EQ(messages.size(), 4U);
        for (const auto& [node, message] : messages) {
            EXPECT_FALSE(rounds.is_over(now));
            wire::MeasuredLink link;
            if (message.serve()) {
                link.set_round(round);
                rounds.note(node, link);
                continue;
            }
            pairs.emplace(node, message.address());
            link.set_there(1e9);
            link.set_round(round - 1);
            rounds.note(node, link);  // of another round
            link.set_round(round);
            if (node != 0 || round > 1) rounds.note(node, link);
        }
        EXPECT_EQ(rounds.is_over(now), round > 1);
        now += kRoundPatience;
        EXPECT_TRUE(rounds.is_over(now));
    }
    EXPECT_TRUE(rounds.begin(now).empty());
    EXPECT_EQ(pairs.size(), 6U);
    const auto links = rounds.links();
    ASSERT_EQ(links.size(), 6U);
    EXPECT_EQ(std::ranges::count_if(links,
                                    [](const auto& one) { return one.problem == "not measured within 5 s"; }),
              1);
    EXPECT_TRUE(LinkRounds({{0, "a", 1, 7}}).begin(now).empty());
}

TEST(LinkRounds, NoneBeginsAfterTheirTime) {
    std::vector<LinkRounds::Place> places;
    for (uint32_t node = 0; node < 200; ++node) places.push_back({node, "a", 1, 7});
    LinkRounds rounds(places);
    EXPECT_EQ(rounds.rounds(), kMostRounds);
    uint32_t begun = 0;
    for (Time now(0); !rounds.begin(now).empty(); now += kRoundPatience) ++begun;
    EXPECT_EQ(begun, 8U);
}

Simulation full_step(uint32_t nodes, uint32_t spares) {
    Settings more;
    if (spares > 0) more.spares = spares;
    return step_with(Preflight::full, nodes, spares > 0 ? FailureAction::restart : FailureAction::abort,
                     more);
}

TEST(NodePreflight, AFullOneMeasuresTheLinks) {
    Simulation s = full_step(4, 0);
    s.join_all();
    for (uint32_t node : {0, 1, 2, 3}) examined(s, node, with_links(node));
    EXPECT_FALSE(s.plans[0]);
    measure_all(s, [](uint32_t, uint32_t) { return 1e9; });
    EXPECT_TRUE(s.plans[0] && s.plans[3]);
    EXPECT_TRUE(s.logged("--dp-preflight: links: 6 pairs between 4 nodes, 8 Gbit/s"));
}

TEST(NodePreflight, ANodeWithASlowLinkIsNotFit) {
    Simulation s = full_step(4, 0);
    s.join_all();
    for (uint32_t node : {0, 1, 2, 3}) examined(s, node, with_links(node));
    measure_all(s, [](uint32_t a, uint32_t b) { return a == 2 || b == 2 ? 1e5 : 1e9; });
    ASSERT_TRUE(s.no_plans[0]);
    EXPECT_THAT(s.log.back(), HasSubstr("gpu2: links: gpu2 with all others: at most 0.8 Mbit/s"));
    EXPECT_THAT(s.log.back(), HasSubstr("--exclude=gpu2"));
}

TEST(NodePreflight, SparesReplaceWhoIsSlowInEitherStage) {
    Simulation s = full_step(6, 2);
    s.join_all();
    for (uint32_t node = 0; node < 6; ++node) examined(s, node, with_links(node, node == 1 ? 2e9 : 10e9));
    EXPECT_TRUE(s.logged("gpu1: memory: gpu1 has 2 GB/s, the usual is 10; it begins with spare node gpu4"));
    measure_all(s, [](uint32_t a, uint32_t b) {
        EXPECT_TRUE(a != 1 && b != 1) << "it is not in the step any more";
        return a == 4 || b == 4 ? 1e5 : 1e9;
    });
    ASSERT_TRUE(s.plans[0]);
    EXPECT_THAT(s.plans[5]->place->ranks, ElementsAre(2, 3));
    EXPECT_TRUE(s.plans[4]->place->ranks.empty());
    EXPECT_TRUE(s.logged("it begins with spare node gpu5"));
}

TEST(NodePreflight, ANodeThatMeasuresNothingHoldsUpNobodyForLong) {
    Simulation s = full_step(2, 0);
    s.join_all();
    for (uint32_t node : {0, 1}) examined(s, node, with_links(node));
    s.pass(kRoundPatience + Time(100));
    ASSERT_TRUE(s.no_plans[0]);
    EXPECT_THAT(s.log.back(), HasSubstr("gpu0 with gpu1: not measured within 5 s"));
}

// ---- beside what else may happen ----

TEST(NodePreflight, NothingBeginsWithoutANodeThatIsLostMeanwhile) {
    Simulation s = step_with(Preflight::quick, 3, FailureAction::report);
    s.join_all();
    examined(s, 0, kFine);
    examined(s, 1, kFine);
    s.cut(2);  // whose word was the last one awaited
    s.pass(Time(300));
    EXPECT_FALSE(s.plans[0] || s.plans[1]);
    EXPECT_TRUE(s.no_plans[0]);

    Settings spare;
    spare.spares = 1;
    Simulation spared = step_with(Preflight::quick, 3, FailureAction::restart, spare);
    spared.join_all();
    examined(spared, 0, kFine);
    examined(spared, 1, kFine);
    spared.cut(2);  // a spare, without which the step can begin
    spared.pass(Time(300));
    EXPECT_TRUE(spared.plans[0] && spared.plans[1]);
}

TEST(NodePreflight, AnUnfitSpareIsNoneForTheNextBrokerEither) {
    Settings spare;
    spare.spares = 2;
    Simulation s = step_with(Preflight::quick, 5, FailureAction::restart, spare);
    s.join_all();
    for (uint32_t node : {0, 1, 2, 3, 4}) examined(s, node, node == 3 ? kFull : kFine);
    ASSERT_TRUE(s.plans[0]);
    s.start_all();
    s.hello_all();
    s.pass(Time(2000));
    s.kill_daemon(0);
    for (uint32_t rank : {2, 3, 4, 5}) s.exit(rank, SIGTERM);
    s.pass(Time(15000));
    ASSERT_FALSE(s.elected.empty());
    EXPECT_FALSE(s.elected.contains(3));
    EXPECT_FALSE(s.lives[3] && !s.lives[3]->place->ranks.empty()) << "it has ranks";
    ASSERT_TRUE(s.lives[4]);
    EXPECT_THAT(s.lives[4]->place->ranks, ElementsAre(0, 1));
}

TEST(NodePreflight, ADryRunSaysWhatWouldBe) {
    Settings spare;
    spare.spares = 1;
    spare.dry_run = true;
    Simulation s = step_with(Preflight::quick, 3, FailureAction::restart, spare);
    s.join_all();
    for (uint32_t node : {0, 1, 2}) examined(s, node, node == 1 ? kFull : kFine);
    EXPECT_TRUE(s.plans[0]);
    EXPECT_TRUE(s.logged("gpu1: temporary files: /tmp: full; it would begin with spare node gpu2"));
}

TEST(NodeFitness, OnlyNodesOfOneKindAreAsFast) {
    const auto judged = [](const std::vector<std::pair<std::string, double>>& model_and_memory) {
        Simulation s = step_with(Preflight::full, 5, FailureAction::abort);
        s.join_all();
        NodeExaminations examinations;
        for (uint32_t node = 0; node < 5; ++node) {
            Said said = with("CPU model", model_and_memory[node].first);
            said.memory = model_and_memory[node].second;
            examinations.note(node, message_of(said));
        }
        return examinations.judge(s.broker->membership());
    };
    const auto old = judged({{"new", 10e9}, {"new", 10e9}, {"new", 10e9}, {"new", 10e9}, {"old", 3e9}});
    EXPECT_TRUE(old.unfit.empty());
    const auto sick = judged({{"new", 10e9}, {"new", 10e9}, {"new", 10e9}, {"new", 10e9}, {"new", 3e9}});
    EXPECT_EQ(sick.unfit, (std::map<uint32_t, std::string>{{4, "memory: gpu4 has 3 GB/s, the usual is 10"}}));
    const auto few = judged({{"new", 10e9}, {"new", 3e9}, {"old", 3e9}, {"old", 3e9}, {"old", 3e9}});
    EXPECT_TRUE(few.unfit.empty());
    EXPECT_THAT(few.remarks, testing::Contains(HasSubstr("memory: gpu1 has 3 GB/s, the usual is 10")));
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    const auto nonsense =
        judged({{"new", nothing}, {"new", -1}, {"new", 1 / 0.0}, {"new", 10e9}, {"new", 9e9}});
    EXPECT_TRUE(nonsense.unfit.empty());
}

TEST(NodeFitness, AReasonIsShortSoThatTheRemedyIsRead) {
    Simulation s = step_with(Preflight::quick, 4, FailureAction::abort);
    s.join_all();
    NodeExaminations examinations;
    for (uint32_t node = 0; node < 4; ++node) {
        Said said = kFine;
        said.faults.assign(3, {"temporary files", std::string(190, static_cast<char>('a' + node))});
        if (node < 3) examinations.note(node, message_of(said));
    }
    examinations.note(3, message_of(kFine));
    const Fitness fitness = examinations.judge(s.broker->membership());
    for (const auto& [node, why] : fitness.unfit) EXPECT_LE(why.size(), 300U);
    EXPECT_THAT(refusal(fitness, s.broker->membership()),
                HasSubstr("--exclude=gpu[0-2]; to start all the same"));
    Fitness both = fitness;
    both.disagreement = "MTU: gpu1 has 1280; 1 other has 1500";
    EXPECT_THAT(
        refusal(both, s.broker->membership()),
        testing::AllOf(HasSubstr("--exclude=gpu[0-2]; and the nodes of this step do not fit together"),
                       HasSubstr("MTU: gpu1 has 1280")));
}

}  // namespace
}  // namespace dp
