// SPDX-License-Identifier: Apache-2.0
//
// All the nodes of a step but the first, in this process: each the real engine of a relay with a real,
// authenticated TCP connection to the broker on loopback. Only its ranks' unix sockets are left out: what a
// rank says goes straight into its node's engine, and what the engine has for the rank goes to `told`.
#pragma once

#include <event2/event.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/broker.hpp"
#include "engine/node.hpp"
#include "loop/broker_link.hpp"
#include "loop/broker_server.hpp"
#include "loop/log.hpp"
#include "loop/timer.hpp"
#include "real_broker.hpp"

namespace dp::bench {

class SimulatedNodes {
 public:
    // The part of a message that other ranks of the node get, too.
    using Told = std::function<void(uint32_t rank, const wire::ToRank&)>;

    SimulatedNodes(const StepShape& shape, const RealBroker& broker, Told told);

    // All nodes connect, prove themselves and get their plan, and their ranks say hello.
    void join();
    void say(uint32_t rank, const wire::FromRank& message);
    // As its node's watch finds.
    void stands_still(uint32_t rank, const wire::Stillness& still);
    // Its connection closes and its launcher tells of it, as when it is killed.
    void rank_dies(uint32_t rank, int wait_status);
    // With --dp-on-failure=restart: it has taken a training step, and is killed. Its node's others end as they are told
    // to, and all start again with the next plan.
    void kept_rank_dies(uint32_t rank, uint64_t step);
    // Its power is gone, and its kernel has closed the connection. (That nobody closes it is what dead-after is for.)
    void node_dies(uint32_t number);
    // Called as a node gets the plan of a next generation.
    void on_next_life(std::function<void()> call) { on_next_life_ = std::move(call); }
    // Carries messages until it is done; at most kPatience.
    void run_until(const std::function<bool()>& done);
    // All ranks say goodbye, and the nodes leave.
    void leave();

    size_t ranks() const { return nodes_.size() * shape_.ranks_per_node; }
    uint32_t first_rank() const { return shape_.ranks_per_node; }

 private:
    struct SimulatedNode {
        SimulatedNode(const DaemonConfig& config, NodeFacts facts, Time now)
            : first_rank(config.ranks.empty() ? 0 : config.ranks.front()),
              engine(config, std::move(facts), now) {}
        uint32_t first_rank;
        uint32_t generation = 0;
        bool is_dead = false;
        Node engine;
        std::unique_ptr<BrokerLink> link;
        std::unique_ptr<Timer> relink;
        std::optional<wire::Roll::Successor> next_link;
    };

    StepShape shape_;
    Told told_;
    event_base* base_;
    Timer ticks_;
    std::vector<std::unique_ptr<SimulatedNode>> nodes_;
    size_t joined_ = 0;
    size_t planned_ = 0;
    size_t left_ = 0;
    std::function<void()> on_next_life_;
    bool leaving_ = false;

    // Of the last node, where it is to follow the broker.
    struct {
        BoundPort port;
        std::optional<RejectedPeers> rejected;
        std::optional<BrokerServer> server;
        std::optional<Broker> broker;
        std::optional<Timer> timer;
    } follower_;
    std::string secret_;

    DaemonConfig config_of(uint32_t node) const;
    void start_follower();
    bool is_broker(const SimulatedNode& node) const {
        return follower_.broker && &node == nodes_.back().get();
    }
    void perform(const BrokerActions& actions);
    void elect(SimulatedNode& node, const NodeActions& actions);
    void seek(SimulatedNode& node, const NodeActions& actions);
    BrokerLink::Events events_of(SimulatedNode& node);
    SimulatedNode& node_of(uint32_t rank) { return *nodes_.at(rank / shape_.ranks_per_node - 1); }
    uint32_t local(uint32_t rank) const { return rank % shape_.ranks_per_node; }
    void perform(SimulatedNode& node, const NodeActions& actions);
    void follow_restart(SimulatedNode& node, const NodeActions& actions);
    void tick(SimulatedNode& node);
    void tick();
};

}  // namespace dp::bench
