// SPDX-License-Identifier: Apache-2.0
//
// Relay and broker over real sockets in one process: they find each other among strangers.
#include "loop/broker_server.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "common/node_setup.hpp"
#include "framing.hpp"
#include "loop/broker_link.hpp"
#include "loop/handshake.hpp"
#include "loop/tcp.hpp"
#include "server_test.hpp"

namespace dp {
namespace {

class Network : public ServerTest {
 protected:
    static constexpr const char* kHere = "127.0.0.1";
    const std::string secret = std::string(32, 's');
    BoundPort port = *listen_on_first_free(candidate_ports({77, 1, 0, ""}), "a test");
    std::vector<uint32_t> joined;  // node ranks whose Join the broker has read
    std::vector<uint32_t> lost;
    BrokerServer::GenerationState state;
    uint32_t other_version = 0;      // as a relay saw it
    std::vector<wire::ToNode> told;  // to any relay
    BrokerServer server{base.get(),
                        port.socket.get(),
                        secret,
                        64,
                        [this] { return state; },
                        rejected,
                        [this](uint32_t node, const wire::FromNode& message) {
                            if (message.has_join()) joined.push_back(node);
                        },
                        [this](uint32_t node, const std::string&) { lost.push_back(node); }};
    std::vector<std::unique_ptr<BrokerLink>> links;

    BrokerLink& relay(uint32_t node, const std::string& with_secret, std::vector<uint16_t> ports = {},
                      uint32_t of_generation = 0) {
        if (ports.empty()) ports = {port.port};
        const size_t index = links.size();
        links.emplace_back();
        links[index] = std::make_unique<BrokerLink>(
            base.get(), std::vector<std::string>{kHere}, ports, with_secret,
            NodeOfGeneration{node, of_generation},
            BrokerLink::Events{[this, index, node](const std::string&) {
                                   wire::FromNode message;
                                   message.mutable_join()->set_node_rank(node);
                                   links[index]->send(message);
                               },
                               [this](const wire::ToNode& message) { told.push_back(message); },
                               [](const std::string&, bool) {},
                               [this](uint32_t protocol) { other_version = protocol; }});
        return *links[index];
    }

    Fd stranger() const {
        Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port.port);
        inet_pton(AF_INET, kHere, &address.sin_addr);
        // In progress is good: the loop will accept it.
        [[maybe_unused]] int ignored =
            connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
        return fd;
    }

    // The next frame's body.
    std::string receive(const Fd& fd) {
        std::string got;
        run([&] {
            char chunk[1024];
            const ssize_t n = recv(fd.get(), chunk, sizeof chunk, MSG_DONTWAIT);
            if (n > 0) got.append(chunk, static_cast<size_t>(n));
            if (got.size() < kFrameHeader) return false;
            return got.size() >=
                   kFrameHeader +
                       *frame_length(reinterpret_cast<const unsigned char*>(got.data()), kMaxFrame);
        });
        return got.substr(std::min(got.size(), kFrameHeader));
    }

    // The answer of one who knows the secret.
    wire::Response response_to(const wire::Challenge& challenge, uint32_t node) const {
        wire::Response response;
        response.set_nonce(make_nonce());
        response.set_node_rank(node);
        response.set_proof(make_proof(
            secret, {Prover::relay, challenge.nonce(), response.nonce(), node, 0, port.port, kHere}));
        return response;
    }

    // A connection that has gone through the handshake as this node.
    Fd proven(uint32_t node) {
        Fd fd = stranger();
        const auto challenge = parse_message<wire::Challenge>(receive(fd));
        const std::string frame = to_frame(response_to(*challenge, node));
        EXPECT_EQ(send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(frame.size()));
        EXPECT_EQ(parse_message<wire::Accept>(receive(fd))->proof().size(), kProofBytes);
        return fd;
    }
};

TEST_F(Network, ARelayProvesItselfAndItsMessagesArrive) {
    relay(3, secret);
    EXPECT_TRUE(run([&] { return joined == std::vector<uint32_t>{3}; }));
}

TEST_F(Network, AWrongSecretGetsNowhere) {
    relay(3, std::string(32, 'x'));
    EXPECT_FALSE(run([&] { return !joined.empty(); }, std::chrono::milliseconds(300)));
}

TEST_F(Network, ManyRelaysAtOnceAllGetIn) {
    for (uint32_t node = 0; node < 60; ++node) relay(node, secret);
    EXPECT_TRUE(run([&] { return joined.size() == 60; })) << joined.size();
}

TEST_F(Network, MoreStrangersThanThereIsRoomForDoNotKeepARelayOut) {
    std::vector<Fd> held;
    for (size_t i = 0; i < kMaxUnproven + 200; ++i) {
        held.push_back(stranger());
        if (i % 100 == 0) pause(std::chrono::milliseconds(5));
    }
    relay(5, secret);
    for (size_t i = 0; i < 100; ++i) held.push_back(stranger());
    EXPECT_TRUE(run([&] { return joined == std::vector<uint32_t>{5}; }));
    // What was refused is gone for good, and what is proven stays.
    server.send(5, wire::ToNode());
    server.close_all();
    pause();
}

TEST_F(Network, APortWhereSomebodyElseListensIsPassedOver) {
    auto silent = listen_on_first_free(candidate_ports({78, 1, 0, ""}), "a test");
    ASSERT_TRUE(silent);
    relay(1, secret, {silent->port, port.port});
    EXPECT_TRUE(run([&] { return joined == std::vector<uint32_t>{1}; }));
}

// What many nodes get is written once: each gets its own part and that, as one message.
TEST_F(Network, ASharedPartArrivesWhole) {
    for (uint32_t node = 0; node < 3; ++node) relay(node, secret);
    ASSERT_TRUE(run([&] { return joined.size() == 3; }));
    wire::ToNode common;
    common.mutable_reply()->mutable_reply()->set_value(std::string(100000, 'v'));
    auto bytes = std::make_shared<const std::string>(common.SerializeAsString());
    const std::weak_ptr<const std::string> kept = bytes;
    for (uint32_t node = 0; node < 3; ++node) {
        wire::ToNode own;
        own.mutable_reply()->add_targets()->set_rank(node);
        server.send(node, {own, bytes});
    }
    bytes.reset();
    EXPECT_FALSE(kept.expired());
    ASSERT_TRUE(run([&] { return told.size() == 3; }));
    std::set<uint32_t> ranks;
    for (const auto& message : told) {
        EXPECT_EQ(message.reply().reply().value(), std::string(100000, 'v'));
        ASSERT_EQ(message.reply().targets_size(), 1);
        ranks.insert(message.reply().targets(0).rank());
    }
    EXPECT_EQ(ranks, (std::set<uint32_t>{0, 1, 2}));
    EXPECT_TRUE(kept.expired());  // sent: nobody holds it any longer
}

// Somebody who speaks the protocol and does not know the secret: he sees one proof of the relay's, over his
// own nonce and a fresh one, and neither that nor anything else makes him the broker.
TEST_F(Network, ABrokerThatCannotProveItselfIsPassedOver) {
    auto other = listen_on_first_free(candidate_ports({80, 1, 0, ""}), "a test");
    ASSERT_TRUE(other);
    std::vector<std::unique_ptr<Connection>> pretending;
    std::vector<wire::Response> seen;
    Listener listener(base.get(), other->socket.get(), rejected, [&](Fd fd) {
        auto* connection =
            pretending
                .emplace_back(std::make_unique<Connection>(base.get(), fd.release(), kMaxHandshakeFrame))
                .get();
        connection->start(
            [&, connection](std::string_view body) {
                const auto response = parse_message<wire::Response>(body);
                if (!response) return;
                seen.push_back(*response);
                wire::Accept accept;  // the relay's own proof given back, then anything
                accept.set_proof(seen.size() == 1 ? response->proof() : make_nonce());
                connection->send(to_frame(accept));
            },
            [](const std::string&, bool) {});
        wire::Challenge challenge;
        challenge.set_protocol(kNodeProtocol);
        challenge.set_nonce(std::string(kNonceBytes, 'n'));
        connection->send(to_frame(challenge));
    });
    relay(1, secret, {other->port});
    ASSERT_TRUE(run([&] { return seen.size() >= 2; }));
    EXPECT_TRUE(joined.empty());
    EXPECT_NE(seen[0].nonce(), seen[1].nonce());
    EXPECT_NE(seen[0].proof(), seen[1].proof());
    for (const auto& response : seen) EXPECT_EQ(response.proof().size(), kProofBytes);
    // Beside the real one he keeps nobody.
    relay(2, secret, {other->port, port.port});
    EXPECT_TRUE(run([&] { return joined == std::vector<uint32_t>{2}; }));
}

TEST_F(Network, ASecondConnectionForANodeAndOneForANodeThatIsNotThereAreDropped) {
    relay(3, secret);
    ASSERT_TRUE(run([&] { return joined.size() == 1; }));
    for (const uint32_t node : {3u, 64u, 4000000000u}) {
        const Fd fd = stranger();
        const auto challenge = parse_message<wire::Challenge>(receive(fd));
        ASSERT_TRUE(challenge);
        const std::string answer = to_frame(response_to(*challenge, node));
        EXPECT_EQ(send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(answer.size()));
        char byte;
        ssize_t got = -1;
        EXPECT_TRUE(run([&] {
            got = recv(fd.get(), &byte, 1, MSG_DONTWAIT);
            return got == 0;
        })) << node;  // closed without a proof of the broker's
    }
    EXPECT_TRUE(lost.empty());
    server.send(3, wire::ToNode());
    EXPECT_TRUE(run([&] { return told.size() == 1; }));  // the first is still there
}

TEST_F(Network, ABrokerOfAnotherVersionIsPassedOverAndNamed) {
    auto other = listen_on_first_free(candidate_ports({79, 1, 0, ""}), "a test");
    ASSERT_TRUE(other);
    wire::Challenge challenge;
    challenge.set_protocol(kNodeProtocol + 1);
    challenge.set_nonce(make_nonce());
    std::unique_ptr<Connection> answer;
    Listener listener(base.get(), other->socket.get(), rejected, [&](Fd fd) {
        answer = std::make_unique<Connection>(base.get(), fd.release(), kMaxHandshakeFrame);
        answer->start([](std::string_view) {}, [](const std::string&, bool) {});
        answer->send(to_frame(challenge));
    });
    relay(1, secret, {other->port, port.port});
    EXPECT_TRUE(run([&] { return joined == std::vector<uint32_t>{1}; }));
    EXPECT_EQ(other_version, kNodeProtocol + 1);
}

// A man in the middle: listens where the relay looks first, and forwards every frame in both directions.
class Between {
 public:
    Between(event_base* base, int socket, std::function<Fd()> to_broker)
        : base_(base),
          to_broker_(std::move(to_broker)),
          listener_(base, socket, rejected_, [this](Fd fd) { accept(std::move(fd)); }) {}
    size_t accepted() const { return pairs_.size(); }

 private:
    struct Pair {
        std::unique_ptr<Connection> relay;
        std::unique_ptr<Connection> broker;
    };
    event_base* base_;
    std::function<Fd()> to_broker_;
    RejectedPeers rejected_;
    std::vector<std::unique_ptr<Pair>> pairs_;
    Listener listener_;

    static std::string frame(std::string_view body) {
        const auto n = static_cast<uint32_t>(body.size());
        std::string out;
        for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(n >> shift);
        return out + std::string(body);
    }
    void accept(Fd fd) {
        Pair* pair = pairs_.emplace_back(std::make_unique<Pair>()).get();
        pair->broker = std::make_unique<Connection>(base_, to_broker_().release(), kMaxFrame);
        pair->relay = std::make_unique<Connection>(base_, fd.release(), kMaxFrame);
        auto carry = [](std::unique_ptr<Connection>& to) {
            return [&to](std::string_view body) { to->send(frame(body)); };
        };
        pair->broker->start(carry(pair->relay), [](const std::string&, bool) {});
        pair->relay->start(carry(pair->broker), [](const std::string&, bool) {});
    }
};

Fd listening_on(const std::string& address, uint16_t number) {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto where = *socket_address(address, number);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&where.storage), where.size), 0);
    EXPECT_EQ(listen(fd.get(), 8), 0);
    return fd;
}

// It is no stranger, so nothing is said; nor does the generation in the proof alone help.
TEST_F(Network, ARelayOfAnotherGenerationIsNotTakenIn) {
    state.generation = 3;
    relay(1, secret, {}, 2);
    relay(2, secret, {}, 4);
    relay(3, secret, {}, 3);
    ASSERT_TRUE(run([&] { return !joined.empty(); }));
    EXPECT_FALSE(run([&] { return joined.size() > 1; }, std::chrono::milliseconds(300)));
    EXPECT_EQ(joined, std::vector<uint32_t>{3});
    // What was proven for generation 2 is no proof in generation 3, whatever is written beside it.
    const Fd fd = stranger();
    const auto challenge = parse_message<wire::Challenge>(receive(fd));
    ASSERT_TRUE(challenge);
    wire::Response response;
    response.set_nonce(make_nonce());
    response.set_node_rank(4);
    response.set_generation(3);
    response.set_proof(
        make_proof(secret, {Prover::relay, challenge->nonce(), response.nonce(), 4, 2, port.port, kHere}));
    const std::string frame = to_frame(response);
    ASSERT_EQ(write(fd.get(), frame.data(), frame.size()), static_cast<ssize_t>(frame.size()));
    EXPECT_TRUE(receive(fd).empty());
    EXPECT_EQ(joined.size(), 1u);
    EXPECT_TRUE(told.empty());
    // Once its nodes cannot go on without this one, it is told so.
    state.is_settled = true;
    relay(5, secret, {}, 2);
    EXPECT_TRUE(run([&] { return !told.empty(); }));
    EXPECT_EQ(told.front().abort().reason(), "the step goes on without this node");
    EXPECT_EQ(joined.size(), 1u);
}

TEST_F(Network, WhoPassesProofsOnFromAnotherAddressOrPortGetsNowhere) {
    // A broker that has 127.0.0.1 alone, so that somebody else can have its port elsewhere.
    const Fd here = listening_on(kHere, 0);
    const uint16_t number = local_end(here.get()).port;
    std::vector<uint32_t> in;
    BrokerServer broker(
        base.get(), here.get(), secret, 64, [] { return BrokerServer::GenerationState(); }, rejected,
        [&](uint32_t node, const wire::FromNode&) { in.push_back(node); },
        [](uint32_t, const std::string&) {});
    auto connect_there = [number] {
        Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const auto where = *socket_address(kHere, number);
        [[maybe_unused]] int ignored =
            connect(fd.get(), reinterpret_cast<const sockaddr*>(&where.storage), where.size);
        return fd;
    };
    const std::pair<std::string, uint16_t> places[] = {{"127.0.0.2", number}, {kHere, 0}};
    for (const auto& [address, wanted] : places) {
        const Fd there = listening_on(address, wanted);
        Between between(base.get(), there.get(), connect_there);
        bool through = false;
        BrokerLink victim(
            base.get(), {address}, {local_end(there.get()).port}, secret, {7, 0},
            BrokerLink::Events{[&](const std::string&) { through = true; }, [](const wire::ToNode&) {},
                               [](const std::string&, bool) {}, [](uint32_t) {}});
        EXPECT_TRUE(run([&] { return between.accepted() > 0; })) << address;
        EXPECT_FALSE(run([&] { return through || !in.empty(); }, std::chrono::milliseconds(300))) << address;
    }
    // Straight ahead it works.
    wire::FromNode join;
    join.mutable_join();
    BrokerLink* honest = nullptr;
    BrokerLink link(
        base.get(), {kHere}, {number}, secret, {7, 0},
        BrokerLink::Events{[&](const std::string&) { honest->send(join); }, [](const wire::ToNode&) {},
                           [](const std::string&, bool) {}, [](uint32_t) {}});
    honest = &link;
    EXPECT_TRUE(run([&] { return in == std::vector<uint32_t>{7}; }));
}

// Each alone is closed and named once with its address; the relay that is there does not notice.
TEST_F(Network, WhatIsNoAnswerToTheChallengeIsClosedAndNamed) {
    relay(2, secret);
    ASSERT_TRUE(run([&] { return !joined.empty(); }));
    wire::FromNode unasked;
    unasked.mutable_leave();
    wire::Response foreign;  // proven for another step: its nonce is not ours
    foreign.set_nonce(make_nonce());
    foreign.set_node_rank(1);
    foreign.set_proof(
        make_proof(secret, {Prover::relay, make_nonce(), foreign.nonce(), 1, 0, port.port, kHere}));
    const std::pair<std::string, const char*> cases[] = {
        {std::string("\x00\x00\x10\x00", 4), "it sent a frame over the limit of 256 bytes"},
        {std::string("\xff\xff\xff\xff", 4), "it sent a frame over the limit of 256 bytes"},
        {std::string("\x00\x00\x00\x03zzz", 7), "it sent no answer to the challenge"},
        {std::string(4, '\0'), "it sent no answer to the challenge"},
        {to_frame(unasked), "it sent no answer to the challenge"},
        {to_frame(foreign), "it does not know this step's secret"},
    };
    for (const auto& [bytes, why] : cases) {
        rejected = RejectedPeers("here");
        testing::internal::CaptureStderr();
        const Fd fd = stranger();
        pause(std::chrono::milliseconds(30));
        EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
        char chunk[1024];
        EXPECT_TRUE(run([&] {
            const ssize_t n = recv(fd.get(), chunk, sizeof chunk, MSG_DONTWAIT);
            return n == 0 || (n < 0 && errno == ECONNRESET);
        })) << why;
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_EQ(said, std::string("slurm-dp: closed a connection from 127.0.0.1: ") + why + "\n");
    }
    // Half a frame is waited for, no longer than kHandshakeSeconds, and one that leaves is nobody's concern.
    testing::internal::CaptureStderr();
    {
        const Fd fd = stranger();
        pause(std::chrono::milliseconds(30));
        EXPECT_EQ(send(fd.get(), "\0\0", 2, MSG_NOSIGNAL), 2);
    }
    stranger();  // connects and goes
    pause(std::chrono::milliseconds(30));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_TRUE(lost.empty());
    wire::FromNode again;
    again.mutable_join()->set_node_rank(2);
    links[0]->send(again);
    EXPECT_TRUE(run([&] { return joined.size() == 2; }));
}

// Who knows the secret and then talks nonsense is a node that is broken: lost, by name, and no other.
TEST_F(Network, AProvenNodeThatTalksNonsenseIsLostAlone) {
    relay(5, secret);
    ASSERT_TRUE(run([&] { return joined.size() == 1; }));
    const std::string nonsense[] = {std::string("\x00\x00\x00\x02\xff\xff", 6),  // no message
                                    std::string("\x7f\xff\xff\xff", 4)};         // longer than any
    for (uint32_t node = 0; node < 2; ++node) {
        const Fd fd = proven(node);
        EXPECT_EQ(send(fd.get(), nonsense[node].data(), nonsense[node].size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(nonsense[node].size()));
        EXPECT_TRUE(run([&] { return lost.size() == node + 1; }));
        EXPECT_EQ(lost.back(), node);
    }
}

TEST_F(Network, AClosedConnectionOfAProvenNodeIsALostNode) {
    relay(2, secret);
    ASSERT_TRUE(run([&] { return !joined.empty(); }));
    links.clear();
    EXPECT_TRUE(run([&] { return lost == std::vector<uint32_t>{2}; }));
    // The same node may come again.
    relay(2, secret);
    EXPECT_TRUE(run([&] { return joined.size() == 2; }));
}

}  // namespace
}  // namespace dp
