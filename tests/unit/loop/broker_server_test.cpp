// SPDX-License-Identifier: Apache-2.0
//
// Relay and broker over real sockets in one process: they find each other among strangers.
#include "loop/broker_server.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <chrono>
#include <string>
#include <vector>

#include "common/node_setup.hpp"
#include "framing.hpp"
#include "loop/broker_link.hpp"
#include "loop/handshake.hpp"

namespace dp {
namespace {

using Clock = std::chrono::steady_clock;

struct FreeBase {
    void operator()(event_base* base) const { event_base_free(base); }
};

class Network : public testing::Test {
 protected:
    static constexpr const char* kHere = "127.0.0.1";
    std::unique_ptr<event_base, FreeBase> base{event_base_new()};
    StrangerLog strangers;
    const std::string secret = std::string(32, 's');
    BoundPort port = *listen_on_first_free(candidate_ports({77, 1, 0, ""}), "a test");
    std::vector<uint32_t> joined;  // node ranks whose Join the broker has read
    std::vector<uint32_t> lost;
    uint32_t other_version = 0;  // as a relay saw it
    BrokerServer server{base.get(),
                        port.socket.get(),
                        secret,
                        64,
                        strangers,
                        [this](uint32_t node, const wire::FromNode& message) {
                            if (message.has_join()) joined.push_back(node);
                        },
                        [this](uint32_t node, const std::string&) { lost.push_back(node); }};
    std::vector<std::unique_ptr<BrokerLink>> links;

    BrokerLink& relay(uint32_t node, const std::string& with_secret, std::vector<uint16_t> ports = {}) {
        if (ports.empty()) ports = {port.port};
        const size_t index = links.size();
        links.emplace_back();
        links[index] = std::make_unique<BrokerLink>(
            base.get(), std::vector<std::string>{kHere}, ports, with_secret, node,
            BrokerLink::Events{[this, index, node](const std::string&) {
                                   wire::FromNode message;
                                   message.mutable_join()->set_node_rank(node);
                                   links[index]->send(message);
                               },
                               [](const wire::ToNode&) {}, [](const std::string&) {},
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

    // Runs the loop until `done`, at most so long.
    template <typename Done>
    bool run(std::chrono::milliseconds time, Done done) {
        Timer tick(base.get(), [] {});
        const auto end = Clock::now() + time;
        while (!done() && Clock::now() < end) {
            tick.after(Time(20));
            event_base_loop(base.get(), EVLOOP_ONCE);
            server.sweep();
            for (auto& link : links) link->sweep();
        }
        return done();
    }
};

TEST_F(Network, ARelayProvesItselfAndItsMessagesArrive) {
    relay(3, secret);
    EXPECT_TRUE(run(std::chrono::seconds(5), [&] { return joined == std::vector<uint32_t>{3}; }));
}

TEST_F(Network, AWrongSecretGetsNowhere) {
    relay(3, std::string(32, 'x'));
    EXPECT_FALSE(run(std::chrono::milliseconds(300), [&] { return !joined.empty(); }));
}

TEST_F(Network, ManyRelaysAtOnceAllGetIn) {
    for (uint32_t node = 0; node < 60; ++node) relay(node, secret);
    EXPECT_TRUE(run(std::chrono::seconds(10), [&] { return joined.size() == 60; })) << joined.size();
}

TEST_F(Network, MoreStrangersThanThereIsRoomForDoNotKeepARelayOut) {
    std::vector<Fd> held;
    for (size_t i = 0; i < kMaxUnproven + 200; ++i) {
        held.push_back(stranger());
        if (i % 100 == 0) run(std::chrono::milliseconds(5), [] { return false; });
    }
    relay(5, secret);
    for (size_t i = 0; i < 100; ++i) held.push_back(stranger());
    EXPECT_TRUE(run(std::chrono::seconds(5), [&] { return joined == std::vector<uint32_t>{5}; }));
    // What was refused is gone for good, and what is proven stays.
    server.send(5, wire::ToNode());
    server.close_all();
    run(std::chrono::milliseconds(50), [] { return false; });
}

TEST_F(Network, APortWhereSomebodyElseListensIsPassedOver) {
    auto silent = listen_on_first_free(candidate_ports({78, 1, 0, ""}), "a test");
    ASSERT_TRUE(silent);
    relay(1, secret, {silent->port, port.port});
    EXPECT_TRUE(run(std::chrono::seconds(5), [&] { return joined == std::vector<uint32_t>{1}; }));
}

TEST_F(Network, ABrokerOfAnotherVersionIsPassedOverAndNamed) {
    auto other = listen_on_first_free(candidate_ports({79, 1, 0, ""}), "a test");
    ASSERT_TRUE(other);
    wire::Challenge challenge;
    challenge.set_protocol(kProtocol + 1);
    challenge.set_nonce(make_nonce());
    std::unique_ptr<Connection> answer;
    Listener listener(
        base.get(), other->socket.get(),
        [&](Fd fd) {
            answer = std::make_unique<Connection>(base.get(), fd.release(), kMaxHandshakeFrame);
            answer->start([](std::string_view) { return true; }, [](const std::string&) {});
            answer->send(to_frame(challenge));
        },
        [](int) {});
    relay(1, secret, {other->port, port.port});
    EXPECT_TRUE(run(std::chrono::seconds(5), [&] { return joined == std::vector<uint32_t>{1}; }));
    EXPECT_EQ(other_version, kProtocol + 1);
}

TEST_F(Network, AClosedConnectionOfAProvenNodeIsALostNode) {
    relay(2, secret);
    ASSERT_TRUE(run(std::chrono::seconds(5), [&] { return !joined.empty(); }));
    links.clear();
    EXPECT_TRUE(run(std::chrono::seconds(5), [&] { return lost == std::vector<uint32_t>{2}; }));
    // The same node may come again.
    relay(2, secret);
    EXPECT_TRUE(run(std::chrono::seconds(5), [&] { return joined.size() == 2; }));
}

}  // namespace
}  // namespace dp
