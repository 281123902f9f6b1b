// SPDX-License-Identifier: Apache-2.0
//
// The checks of several nodes together.
#include <set>
#include <thread>

#include "doctor/examination.hpp"
#include "doctor/links.hpp"
#include "findings/comparison.hpp"
#include "findings/tournament.hpp"
#include "found.hpp"

namespace dp::doctor {
namespace {

using testing::HasSubstr;

TEST(DoctorTournament, EachTwoNodesMeetOnce) {
    for (uint32_t nodes = 2; nodes <= 33; ++nodes) {
        std::set<std::pair<uint32_t, uint32_t>> met;
        for (uint32_t round = 0; round < rounds_of(nodes); ++round)
            for (uint32_t node = 0; node < nodes; ++node) {
                const auto partner = partner_in(round, node, nodes);
                if (!partner) {
                    EXPECT_EQ(nodes % 2, 1U);
                    continue;
                }
                ASSERT_LT(*partner, nodes);
                EXPECT_NE(*partner, node);
                EXPECT_EQ(partner_in(round, *partner, nodes), node) << nodes << " nodes, round " << round;
                if (*partner < node) continue;
                EXPECT_TRUE(met.emplace(node, *partner).second);
            }
        EXPECT_EQ(met.size(), size_t{nodes} * (nodes - 1) / 2) << nodes;
    }
    EXPECT_EQ(rounds_of(1), 0U);
}

constexpr LinkToken kToken = {4711, 3};

const std::vector<std::string> kHosts = {"node01", "node02", "node03", "node04"};

std::vector<size_t> odd_ones(const std::vector<std::string>& mtus) {
    std::vector<NodeFacts> nodes;
    for (const auto& mtu : mtus) nodes.push_back({{"MTU", mtu}});
    return compare_nodes(nodes, kHosts).at(0).odd;
}

TEST(DoctorComparison, WhoIsInTheMinorityIsTheOddOne) {
    using Odd = std::vector<size_t>;
    EXPECT_EQ(odd_ones({"1500", "1500", "1500", "1500"}), Odd());
    EXPECT_EQ(odd_ones({"1500", "9000", "1500", "1500"}), Odd({1}));
    EXPECT_EQ(odd_ones({"1500", "9000", "9000", "9000"}), Odd({0}));
    EXPECT_EQ(odd_ones({"1500", "9000", "1500", "9000"}), Odd());
    EXPECT_EQ(odd_ones({"1280", "9000", "1500", "9000"}), Odd());
    EXPECT_EQ(odd_ones({"1280", "1500", "9000"}), Odd());
    EXPECT_EQ(odd_ones({"1280", "1500"}), Odd());
}

std::vector<size_t> slow_ones(const std::vector<double>& memory) {
    std::vector<NodeMeasures> nodes;
    for (const double one : memory) nodes.push_back({{"memory", one * 1e9}, {"cores", 5e9}});
    const auto found = compare_measures(nodes, {"node01", "node02", "node03", "node04", "node05"});
    EXPECT_EQ(finding_of(found, "cores").level, Level::ok);
    return finding_of(found, "memory").odd;
}

TEST(DoctorComparison, WhoIsMuchSlowerThanUsualIsTheOddOne) {
    using Odd = std::vector<size_t>;
    EXPECT_EQ(slow_ones({10, 10.2, 9.9, 10.1, 9.8}), Odd());
    EXPECT_EQ(slow_ones({10, 10.2, 4.5, 10.1, 9.8}), Odd({2}));
    EXPECT_EQ(slow_ones({4, 10, 4.5, 10.1, 9.8}), Odd({0, 2}));
    EXPECT_EQ(slow_ones({10, 10, 6, 10, 10}), Odd()) << "slower, and not much";
    EXPECT_EQ(slow_ones({10, 4.9}), Odd({1}));
    EXPECT_EQ(slow_ones({10, 5.1}), Odd());
    // They are all different.
    EXPECT_EQ(slow_ones({10, 3, 6, 15, 20}), Odd());
    EXPECT_EQ(compare_measures({{{"memory", 1e9}}, {}}, kHosts).size(), 0U) << "of one alone";
    const auto found = compare_measures({{{"memory", 2e9}}, {{"memory", 10e9}}, {{"memory", 11e9}}}, kHosts);
    EXPECT_EQ(found.at(0).seen, "node01 has 2 GB/s, the usual is 10");
}

TEST(DoctorComparison, WhoDiffersIsNamed) {
    const NodeFacts usual = {{"driver", "580.65"}, {"MTU", "9000"}, {"CPUs", "64"}};
    std::vector<NodeFacts> nodes(4, usual);
    EXPECT_EQ(complaints(compare_nodes(nodes, kHosts)), std::vector<std::string>());
    nodes[1]["driver"] = "570.12";
    nodes[3]["MTU"] = "1280";
    const auto found = compare_nodes(nodes, kHosts);
    EXPECT_EQ(complaints(found), (std::vector<std::string>{"MTU", "driver"}));
    EXPECT_EQ(finding_of(found, "driver").seen, "node02 has 570.12; 3 others have 580.65");
    EXPECT_EQ(finding_of(found, "MTU").level, Level::fault);
    EXPECT_EQ(finding_of(found, "CPUs").seen, "64");
    nodes[0].erase("driver");
    nodes[2].erase("driver");
    EXPECT_THAT(finding_of(compare_nodes(nodes, kHosts), "driver").seen, HasSubstr("2 others have none"));
}

// Of all pairs, as fast as each other.
std::vector<Link> healthy_links() {
    std::vector<Link> links;
    for (uint32_t from = 0; from < 4; ++from)
        for (uint32_t to = from + 1; to < 4; ++to) links.push_back({from, to, 1.2e9, 1.1e9, 1e-4, 1e-5, ""});
    return links;
}

Findings check(const std::vector<Link>& links) {
    const auto found = check_links(links, kHosts);
    return {found.begin(), found.end()};
}

TEST(DoctorLinks, FindsEachFaultAndNothingElse) {
    using Links = std::vector<Link>;
    const auto of_node = [](Links& links, uint32_t node, auto change) {
        for (Link& link : links)
            if (link.from == node || link.to == node) change(link);
    };
    expect_found<Links>(
        {
            {[&](Links& l) { of_node(l, 1, [](Link& one) { one.there = 120000; }); }, "links", Level::warning,
             "node02 with all others: at most 0.96 Mbit/s, the usual is 9.6 Gbit/s", "--exclude=node02"},
            {[&](Links& l) { of_node(l, 3, [](Link& one) { one.problem = "no connection"; }); }, "links",
             Level::fault, "node04 with all others: no connection", "--exclude=node04"},
            {[](Links& l) { l[1].back = 1e8; }, "links", Level::warning,
             "node01 with node03: 800 Mbit/s, the usual is", "cables"},
            {[](Links& l) { l[5].problem = "large ones do not"; }, "links", Level::fault,
             "node03 with node04: large ones do not", "cables"},
            {[](Links& l) {
                 for (Link& one : l) one.there = one.back = 1e6;
             },
             "links", Level::warning, "8 Mbit/s", "cables"},
            {[&](Links& l) { of_node(l, 2, [](Link& one) { one.ahead = one.to == 2 ? 7 : -7; }); }, "clocks",
             Level::warning, "node03 is 7 s ahead", "chronyd"},
            {[&](Links& l) { of_node(l, 0, [](Link& one) { one.ahead = 400; }); }, "clocks", Level::fault,
             "node01 is 400 s behind", "chronyd"},
        },
        healthy_links(), check);
    EXPECT_TRUE(check({}).empty());
}

TEST(DoctorLinks, OfThreeNodesOne) {
    const std::vector<std::string> hosts = {"node01", "node02", "node03"};
    const std::vector<Link> slow = {
        {0, 1, 1e9, 1e9, 1e-4, 0, ""}, {0, 2, 2e7, 2e7, 1e-4, -10, ""}, {1, 2, 2e7, 2e7, 1e-4, -10, ""}};
    const auto found = check_links(slow, hosts);
    EXPECT_THAT(finding_of(found, "links").seen, HasSubstr("node03 with all others"));
    EXPECT_EQ(finding_of(found, "clocks").seen, "node03 is 10 s behind");
}

TEST(DoctorLinks, AreMeasured) {
    const auto server = LinkServer::open("127.0.0.1");
    ASSERT_TRUE(server) << server.error().message;
    std::thread partner([&] { server->serve(kToken, std::chrono::seconds(20)); });
    const Link link = measure_link("127.0.0.1", server->port(), kToken, std::chrono::seconds(20));
    partner.join();
    EXPECT_EQ(link.problem, "");
    EXPECT_GT(link.there, 1e7);
    EXPECT_GT(link.back, 1e7);
    EXPECT_GT(link.round_trip, 0);
    EXPECT_LT(std::abs(link.ahead), 1);
}

TEST(DoctorLinks, SayWhyTheyCannotBeMeasured) {
    EXPECT_THAT(measure_link("127.0.0.1", 1, kToken, std::chrono::seconds(1)).problem,
                HasSubstr("Connection refused"));
    EXPECT_THAT(measure_link("node01", 1, kToken, std::chrono::seconds(1)).problem,
                HasSubstr("is not an address"));
    const auto server = LinkServer::open("127.0.0.1");  // and nobody serves
    ASSERT_TRUE(server);
    const Link late = measure_link("127.0.0.1", server->port(), kToken, std::chrono::milliseconds(200));
    EXPECT_THAT(late.problem, HasSubstr("no answer within 200 ms"));
    EXPECT_EQ(late.round_trip, 0);
}

TEST(DoctorLinks, StrangersAndLatecomersAreSentAway) {
    const auto server = LinkServer::open("127.0.0.1");
    ASSERT_TRUE(server);
    // Of an earlier round, and one that says nothing.
    EXPECT_NE(measure_link("127.0.0.1", server->port(), {1, 1}, std::chrono::milliseconds(100)).problem, "");
    EXPECT_NE(measure_link("127.0.0.1", server->port(), {1, 1}, std::chrono::milliseconds(0)).problem, "");
    std::thread partner([&] { server->serve(kToken, std::chrono::seconds(20)); });
    EXPECT_EQ(measure_link("127.0.0.1", server->port(), kToken, std::chrono::seconds(20)).problem, "");
    partner.join();
    server->serve(kToken, std::chrono::milliseconds(50));  // and nobody comes
}

TEST(DoctorLinks, OneBrokenLinkOfASlowNodeIsNotAllOfThem) {
    std::vector<Link> links = healthy_links();
    for (Link& link : links)
        if (link.from == 3 || link.to == 3) link.there = link.back = 3e8;
    links.back().problem = "no connection";  // of node03 with node04
    const auto found = check_links(links, kHosts);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0].level, Level::warning);
    EXPECT_THAT(found[0].seen, HasSubstr("node04 with all others: at most 2.4 Gbit/s"));
    EXPECT_EQ(found[1].level, Level::fault);
    EXPECT_THAT(found[1].seen, HasSubstr("node03 with node04: no connection"));
    EXPECT_TRUE(found[0].odd.empty() && found[1].odd.empty());
}

TEST(DoctorLinks, ABrokenLinkOfAHopelessNodeIsItsOwn) {
    std::vector<Link> links = healthy_links();
    for (Link& link : links)
        if (link.from == 3 || link.to == 3) link.there = link.back = 1e5;
    links.back().problem = "no connection";
    const auto found = check_links(links, kHosts);
    ASSERT_EQ(found.size(), 2U) << "and the clocks";
    EXPECT_EQ(found[0].odd, std::vector<size_t>{3});
    EXPECT_EQ(found[0].level, Level::fault);
    EXPECT_THAT(found[0].seen, HasSubstr("node04 with all others: no connection"));
}

TEST(DoctorLinks, ANodeWhoseLinksAreMostlyBrokenIsLeftOut) {
    std::vector<Link> links = healthy_links();
    for (Link& link : links)
        if (link.to == 3) link.problem = link.from > 0 ? "no connection" : "";
    links[2].there = links[2].back = 2e8;  // of node01 with node04
    const auto found = check_links(links, kHosts);
    ASSERT_EQ(found.size(), 2U) << "and the clocks";
    EXPECT_EQ(found[0].odd, std::vector<size_t>{3});
    EXPECT_EQ(found[0].level, Level::fault);
}

TEST(DoctorLinks, ABrokenPairIsToldBesideABrokenNode) {
    std::vector<Link> links = healthy_links();
    for (Link& link : links) {
        if (link.from == 3 || link.to == 3) link.problem = "no connection";
        if (link.from == 0 && link.to == 1) link.problem = "no answer";
    }
    const auto found = check_links(links, kHosts);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0].odd, std::vector<size_t>{3});
    EXPECT_THAT(found[0].seen, HasSubstr("node04 with all others: no connection"));
    EXPECT_THAT(found[1].seen, HasSubstr("node01 with node02: no answer"));
    EXPECT_TRUE(found[1].odd.empty());
}

TEST(DoctorLinks, ASlowNodeIsOddOnlyIfItIsHopeless) {
    const auto odd_at = [](double share) {
        std::vector<Link> links = healthy_links();
        for (Link& link : links)
            if (link.from == 2 || link.to == 2) link.there = link.back = share * 1.2e9;
        return check_links(links, kHosts).at(0);
    };
    EXPECT_EQ(odd_at(0.2).level, Level::warning);
    EXPECT_TRUE(odd_at(0.2).odd.empty());
    EXPECT_EQ(odd_at(0.05).odd, std::vector<size_t>{2});
}

TEST(DoctorLinks, NumbersThatCannotBeAreAProblem) {
    const double infinite = 1 / 0.0;
    for (const Link& made_up :
         {Link{0, 1, -1, 1, 1, 1, ""}, Link{0, 1, 1, infinite, 1, 1, ""},
          Link{0, 1, 1, 1, infinite - infinite, 1, ""}, Link{0, 1, 1, 1, 1, infinite, ""}})
        EXPECT_EQ(link_of(message_of(made_up)).problem, "measured nonsense");
    EXPECT_EQ(link_of(message_of({0, 1, 2, 3, 4, -5, ""})).problem, "");
}

TEST(DoctorExamination, TravelsAsMessage) {
    Examination one;
    one.host = "node01";
    one.topics = {
        {"kernel", {ok("clock", "synchronized"), fault("ptrace", "no \xff text\nseen", "why", "do")}}};
    one.facts = {{"MTU", "9000"}};
    wire::NodeExamination message;
    ASSERT_TRUE(message.ParseFromString(message_of(one).SerializeAsString()));
    const Examination other = examination_of(message);
    EXPECT_EQ(other.host, one.host);
    EXPECT_EQ(other.facts, one.facts);
    ASSERT_EQ(other.topics.size(), 1U);
    EXPECT_EQ(other.topics[0].findings, one.topics[0].findings);
    // Of a later version.
    message.mutable_topics(0)->mutable_findings(0)->set_level(static_cast<wire::NodeExamination::Level>(7));
    EXPECT_EQ(examination_of(message).topics[0].findings[0].level, Level::fault);
}

TEST(DoctorExamination, AQuickOneMeasuresNothing) {
    Machine machine;
    machine.depth = Depth::quick;
    machine.scontrol = "/nonexistent/scontrol";
    const Examination found = examine_machine(machine);
    std::vector<std::string> topics;
    for (const Topic& topic : found.topics) topics.push_back(topic.name);
    EXPECT_EQ(topics, (std::vector<std::string>{"kernel", "network", "cores", "disks", "GPUs"}));
    for (const Topic& topic : found.topics)
        for (const Finding& one : topic.findings)
            EXPECT_EQ(one.seen.find("writes at"), std::string::npos) << one.seen;
    EXPECT_TRUE(found.facts.contains("kernel"));
}

}  // namespace
}  // namespace dp::doctor
