// SPDX-License-Identifier: Apache-2.0
//
// The checks of several nodes together.
#include <set>
#include <thread>

#include "doctor/comparison.hpp"
#include "doctor/examination.hpp"
#include "doctor/links.hpp"
#include "doctor/tournament.hpp"
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

TEST(DoctorComparison, WhoDiffersIsNamed) {
    const NodeFacts usual = {{"driver", "580.65"}, {"MTU", "9000"}, {"CPUs", "64"}};
    std::vector<NodeFacts> nodes(4, usual);
    EXPECT_EQ(complaints(compare_nodes(nodes, kHosts)), std::vector<std::string>());
    nodes[1]["driver"] = "570.12";
    nodes[3]["MTU"] = "1280";
    const Findings found = compare_nodes(nodes, kHosts);
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
    return check_links(links, kHosts);
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
             "node02 with all others: at most 0.96 Mbit/s, the usual is 9.6e+03", "--exclude=node02"},
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
    const Findings found = check_links(slow, hosts);
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

TEST(DoctorExamination, TravelsAsText) {
    Examination one;
    one.host = "node01";
    one.topics = {
        {"kernel", {ok("clock", "synchronized"), fault("ptrace", "a \"quoted\"\nseen", "why", "do")}}};
    one.facts = {{"MTU", "9000"}};
    const auto other = examination_from(to_text(one));
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_EQ(other->host, one.host);
    EXPECT_EQ(other->facts, one.facts);
    ASSERT_EQ(other->topics.size(), 1U);
    EXPECT_EQ(other->topics[0].findings, one.topics[0].findings);
    for (const char* text : {"", "{}", "[1]", R"({"host": 1})",
                             R"({"host": "a", "topics": [["x", [["c", 7, "", "", ""]]]], "facts": {}})"})
        EXPECT_FALSE(examination_from(text)) << text;
}

}  // namespace
}  // namespace dp::doctor
