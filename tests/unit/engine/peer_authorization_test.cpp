// SPDX-License-Identifier: Apache-2.0
//
// Who is let in to a port without authentication: the step's user on the step's nodes, and nobody else.
#include "engine/peer_authorization.hpp"

#include <gtest/gtest.h>

#include "simulation.hpp"

namespace dp {
namespace {

constexpr uid_t kAlice = 1001;
constexpr uid_t kBob = 1002;
constexpr Time kNow{1000};

wire::WhoOwns from(const std::string& client, uint64_t connection) {
    wire::WhoOwns asked;
    asked.set_connection(connection);
    asked.set_client_address(client);
    return asked;
}

struct Owner {
    std::optional<uid_t> uid;
    std::string problem = {};
    wire::Owner of(uint64_t connection = 0) const {
        wire::Owner said;
        said.set_connection(connection);
        said.set_problem(problem);
        if (uid) said.set_uid(*uid);
        return said;
    }
};

class VouchingTest : public testing::Test {
 protected:
    PeerAuthorization authorization{kAlice};
    void SetUp() override {
        authorization.add_node(0, {"127.0.0.1", "10.0.0.1", "fd00::1", "192.168.122.1"}, true);
        authorization.add_node(1, {"127.0.0.1", "10.0.0.2", "192.168.122.1"}, false);
        authorization.add_node(2, {"127.0.0.1", "10.0.0.3"}, false);
    }
    using Decisions = std::vector<PeerAuthorization::Decision>;
    Decisions answered(uint32_t node, uint64_t connection, const Owner& owner) {
        authorization.answer(node, owner.of(connection));
        return authorization.take_decisions();
    }
    // Why the last one was refused.
    std::string refusal() {
        const auto decisions = authorization.take_decisions();
        return decisions.size() == 1 ? decisions[0].refused : "no decision";
    }
    std::string refusal(uint32_t node, uint64_t connection, const Owner& owner) {
        authorization.answer(node, owner.of(connection));
        return refusal();
    }
};

TEST_F(VouchingTest, TheNodeOfTheAddressIsAsked) {
    const std::vector<std::pair<std::string, std::vector<uint32_t>>> table = {
        {"10.0.0.2", {1}},  {"10.0.0.3", {2}},         {"10.0.0.1", {0}},
        {"fd00::1", {0}},   {"192.168.122.1", {0, 1}},                // of a bridge that both have
        {"127.0.0.1", {0}}, {"127.8.8.8", {0}},        {"::1", {0}},  // never of another host
    };
    uint64_t id = 0;
    for (const auto& [client, nodes] : table) {
        EXPECT_EQ(authorization.ask(from(client, ++id), kNow), nodes) << client;
        EXPECT_TRUE(authorization.take_decisions().empty()) << client;
    }
}

TEST_F(VouchingTest, AnAddressOfNoNodeIsRefusedAtOnce) {
    for (const char* client : {"10.0.0.4", "fd00::2", "?", ""}) {
        EXPECT_TRUE(authorization.ask(from(client, 1), kNow).empty());
        EXPECT_EQ(refusal(), "no node of this step has that address") << client;
    }
    EXPECT_FALSE(authorization.next_deadline());
}

TEST_F(VouchingTest, TheStepsUserIsLetIn) {
    authorization.ask(from("10.0.0.2", 7), kNow);
    EXPECT_EQ(answered(1, 7, {kAlice, ""}), (Decisions{{7, "", 1}}));
    EXPECT_EQ(answered(1, 7, {kBob, ""}), Decisions{});  // that is decided
    EXPECT_FALSE(authorization.next_deadline());
}

TEST_F(VouchingTest, AnotherUserAndNobodyAreRefused) {
    authorization.ask(from("10.0.0.2", 7), kNow);
    EXPECT_EQ(refusal(1, 7, {kBob, ""}), "it belongs to user id 1002, and this step to user id 1001");
    authorization.ask(from("10.0.0.2", 8), kNow);
    EXPECT_EQ(refusal(1, 8, {0, ""}), "it belongs to user id 0, and this step to user id 1001");
    authorization.ask(from("10.0.0.2", 9), kNow);
    EXPECT_EQ(refusal(1, 9, {std::nullopt, "no such socket"}), "no such socket");
}

TEST_F(VouchingTest, OnlyTheNodeThatWasAskedMayAnswer) {
    authorization.ask(from("10.0.0.2", 7), kNow);
    EXPECT_EQ(answered(2, 7, {kAlice, ""}), Decisions{});
    EXPECT_EQ(answered(0, 7, {kAlice, ""}), Decisions{});
    EXPECT_EQ(answered(1, 8, {kAlice, ""}), Decisions{});
    EXPECT_EQ(answered(1, 7, {kAlice, ""}).size(), 1u);
}

TEST_F(VouchingTest, OfSeveralNodesWithTheAddressOneMustKnowIt) {
    authorization.ask(from("192.168.122.1", 7), kNow);
    EXPECT_EQ(answered(0, 7, {std::nullopt, "not mine"}), Decisions{});
    EXPECT_EQ(refusal(1, 7, {kAlice, ""}), "");
    authorization.ask(from("192.168.122.1", 8), kNow);
    EXPECT_EQ(answered(0, 8, {std::nullopt, "not mine"}), Decisions{});
    EXPECT_EQ(answered(0, 8, {std::nullopt, "not mine"}), Decisions{});  // twice is not both
    EXPECT_EQ(refusal(1, 8, {std::nullopt, "not mine either"}), "not mine either");
}

TEST_F(VouchingTest, NoAnswerInTimeIsNo) {
    authorization.ask(from("10.0.0.2", 7), kNow);
    EXPECT_EQ(authorization.next_deadline(), kNow + kAuthorizationDeadline);
    authorization.expire(kNow + kAuthorizationDeadline - Time(1));
    EXPECT_TRUE(authorization.take_decisions().empty());
    authorization.expire(kNow + kAuthorizationDeadline);
    EXPECT_EQ(refusal(), "its node did not say within 5 s to whom it belongs");
    EXPECT_EQ(answered(1, 7, {kAlice, ""}), Decisions{});  // too late
}

TEST_F(VouchingTest, ANodeThatLeftVouchesForNobody) {
    authorization.ask(from("10.0.0.2", 7), kNow);
    authorization.ask(from("10.0.0.3", 8), kNow);
    authorization.remove_node(1);
    EXPECT_EQ(authorization.take_decisions(), (Decisions{{7, "its node has left the step"}}));
    authorization.ask(from("10.0.0.2", 9), kNow);
    EXPECT_EQ(refusal(), "no node of this step has that address");
    EXPECT_EQ(refusal(2, 8, {kAlice, ""}), "");
    authorization.remove_node(0);
    authorization.ask(from("127.0.0.1", 10), kNow);
    EXPECT_EQ(refusal(), "no node of this step has that address");
}

TEST_F(VouchingTest, TheOldestMakesRoomForANewcomer) {
    for (uint64_t id = 1; id <= kMaxUnvouched; ++id) authorization.ask(from("10.0.0.2", id), kNow);
    EXPECT_TRUE(authorization.take_decisions().empty());
    EXPECT_EQ(authorization.ask(from("10.0.0.3", 5000), kNow + Time(1)), std::vector<uint32_t>{2});
    EXPECT_EQ(authorization.take_decisions(),
              (Decisions{{1, "too many connections whose owner is not known yet"}}));
    EXPECT_EQ(answered(1, 1, {kAlice, ""}), Decisions{});
    EXPECT_EQ(refusal(2, 5000, {kAlice, ""}), "");
    EXPECT_EQ(authorization.next_deadline(), kNow + kAuthorizationDeadline);
    authorization.expire(kNow + kAuthorizationDeadline);
    EXPECT_EQ(authorization.take_decisions().size(), kMaxUnvouched - 1);
}

TEST_F(VouchingTest, ANodeThatDoesNotAnswerIsNotAskedForEver) {
    for (uint64_t id = 1; id <= kMaxQuestions; ++id) authorization.ask(from("10.0.0.2", id), kNow);
    authorization.take_decisions();  // of those that were too many
    EXPECT_TRUE(authorization.ask(from("10.0.0.2", 5000), kNow).empty());
    EXPECT_EQ(refusal(), "its node does not answer");
    EXPECT_EQ(authorization.ask(from("10.0.0.3", 5001), kNow), std::vector<uint32_t>{2});
    // It answers again, late: that connection is gone, but it may be asked about another.
    authorization.answer(1, Owner{kAlice}.of(1));
    EXPECT_EQ(authorization.ask(from("10.0.0.2", 5002), kNow), std::vector<uint32_t>{1});
}

// Through broker and nodes as they are: the question reaches the node, its answer the broker.
TEST(VouchingInAStep, TheNodeLooksUpAndTheBrokerDecides) {
    Simulation step(2, 1);
    step.join_all();
    const uid_t owner = 0;  // of the simulated step
    struct Row {
        std::string client;
        Owner found;
        uint32_t node;
        std::string refused;
    };
    for (const Row& row :
         {Row{"10.0.0.2", {owner, ""}, 1, ""}, Row{"10.0.0.1", {owner, ""}, 0, ""},
          Row{"10.0.0.2", {kBob, ""}, 1, "it belongs to user id 1002, and this step to user id 0"},
          Row{"10.0.0.2", {std::nullopt, "nobody's"}, 1, "nobody's"}}) {
        step.owner = row.found.of();
        step.decisions.clear();
        step.lookups.clear();
        step.connect(from(row.client, 5));
        ASSERT_EQ(step.lookups.size(), 1u) << row.client;
        EXPECT_EQ(step.lookups[0].first, row.node);
        EXPECT_EQ(step.lookups[0].second.client_address(), row.client);
        EXPECT_EQ(
            step.decisions,
            (std::vector<PeerAuthorization::Decision>{{5, row.refused, row.refused.empty() ? row.node : 0}}));
    }
    step.decisions.clear();
    step.connect(from("10.9.9.9", 6));
    EXPECT_EQ(step.decisions,
              (std::vector<PeerAuthorization::Decision>{{6, "no node of this step has that address"}}));
    // Node 1 is cut off while it is asked.
    step.owner.reset();
    step.decisions.clear();
    step.connect(from("10.0.0.2", 7));
    EXPECT_TRUE(step.decisions.empty());
    step.cut(1);
    EXPECT_EQ(step.decisions, (std::vector<PeerAuthorization::Decision>{{7, "its node has left the step"}}));
}

TEST(VouchingInAStep, ASilentNodeIsNotWaitedForLonger) {
    Simulation step(2, 1);
    step.join_all();
    step.connect(from("10.0.0.2", 7));  // and no answer
    step.pass(kAuthorizationDeadline + Time(100));
    ASSERT_EQ(step.decisions.size(), 1u);
    EXPECT_NE(step.decisions[0].refused, "");
}

}  // namespace
}  // namespace dp
