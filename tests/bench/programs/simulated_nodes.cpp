// SPDX-License-Identifier: Apache-2.0
#include "simulated_nodes.hpp"

#include <signal.h>

#include <utility>

#include "common/control.hpp"
#include "failing.hpp"
#include "framing.hpp"
#include "loop/handshake.hpp"

namespace dp::bench {
namespace {

// Every node's clock is looked at so often; their beats are further apart.
constexpr Time kTick{100};

Time engine_now() {
    return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

SimulatedNodes::SimulatedNodes(const StepShape& shape, const RealBroker& broker, Told told)
    : shape_(shape), told_(std::move(told)), base_(event_base_new()), ticks_(base_, [this] { tick(); }) {
    auto secret = secret_from_hex(broker.secret());
    if (!secret) die(secret.error().message);
    secret_ = *secret;
    if (shape.broker_dies) start_follower();
    for (uint32_t n = 1; n < shape.nodes; ++n) {
        NodeFacts facts;
        if (n + 1 == shape.nodes) facts.port = follower_.port.port;
        auto& node = nodes_.emplace_back(std::make_unique<SimulatedNode>(config_of(n), facts, engine_now()));
        node->link = std::make_unique<BrokerLink>(base_, std::vector<std::string>{"127.0.0.1"},
                                                  std::vector<uint16_t>{broker.port()}, secret_,
                                                  NodeOfGeneration{n, 0}, events_of(*node));
    }
    ticks_.after(kTick);
}

DaemonConfig SimulatedNodes::config_of(uint32_t node) const {
    DaemonConfig config;
    config.node_rank = node;
    config.host = "sim" + std::to_string(node);
    const uint32_t first = node * shape_.ranks_per_node;
    for (uint32_t rank = first; rank < first + shape_.ranks_per_node && rank < shape_.world(); ++rank)
        config.ranks.push_back(rank);
    config.tasks = shape_.ranks_per_node;
    config.world_size = shape_.world();
    config.nodes = shape_.nodes;
    config.broker_host = "sim0";
    config.settings.on_failure = shape_.on_failure;
    config.settings.spares = shape_.spares;
    config.settings.timeout_seconds = static_cast<uint32_t>(kPatience.count());
    config.settings = with_defaults(config.settings);
    return config;
}

BrokerLink::Events SimulatedNodes::events_of(SimulatedNode& node) {
    return {[this, &node](const std::string& address) {
                ++joined_;
                perform(node, node.engine.on_joined(address, engine_now()));
            },
            [this, &node](const wire::ToNode& message) {
                if (node.is_dead) return;
                perform(node, node.engine.on_broker(message, engine_now()));
                tick(node);
            },
            [this, &node](const std::string& why, bool by_peer) {
                if (node.is_dead) return;
                if (shape_.broker_dies)
                    return perform(node, node.engine.on_broker_lost(why, engine_now(), by_peer));
                if (!leaving_) die("a simulated node lost the broker: " + why);
                ++left_;
            },
            [](uint32_t) { die("the broker is of another version"); }};
}

void SimulatedNodes::perform(SimulatedNode& node, const NodeActions& actions) {
    if (actions.plan) ++planned_;
    if (actions.seek || actions.disconnect) seek(node, actions);
    for (const auto& message : actions.to_broker) {
        if (is_broker(node))
            perform(follower_.broker->on_message(shape_.nodes - 1, message, engine_now()));
        else if (node.link)
            node.link->send(message);
    }
    if (actions.elected) elect(node, actions);
    SharedBytes read;
    wire::ToRank shared;
    for (const auto& [connection, message] : actions.to_ranks) {
        if (!message.rest) continue;
        if (std::exchange(read, message.rest) != message.rest) shared.ParseFromString(*message.rest);
        if (shared.has_abort() && shape_.on_failure != FailureAction::restart)
            die("the step was aborted: " + shared.abort().reason());
        told_(node.first_rank + static_cast<uint32_t>(connection), shared);
    }
    follow_restart(node, actions);
}

// ---- the broker dies (shape.broker_dies) ----

void SimulatedNodes::start_follower() {
    auto port =
        listen_on_first_free(candidate_ports({static_cast<uint32_t>(getpid()), 1, 0, ""}), "a broker");
    if (!port) die(port.error().message);
    follower_.port = std::move(*port);
    follower_.rejected.emplace("the benchmark");
    follower_.timer.emplace(base_, [this] { perform(follower_.broker->tick(engine_now())); });
    follower_.server.emplace(
        base_, follower_.port.socket.get(), secret_, shape_.nodes,
        [this] {
            return BrokerServer::GenerationState{nodes_.back()->generation, false};
        },
        *follower_.rejected,
        [this](uint32_t node, const wire::FromNode& message) {
            if (follower_.broker)
                perform(follower_.broker->on_message(node, message, engine_now()));
            else
                perform(*nodes_.back(), nodes_.back()->engine.on_supporter(node, message, engine_now()));
        },
        [](uint32_t, const std::string& why) { die("the follower lost a node: " + why); });
}

void SimulatedNodes::seek(SimulatedNode& node, const NodeActions& actions) {
    node.next_link = actions.seek;
    node.relink = std::make_unique<Timer>(base_, [this, &node] {
        node.link.reset();
        if (const auto to = std::exchange(node.next_link, std::nullopt))
            node.link = std::make_unique<BrokerLink>(
                base_, std::vector<std::string>{to->address()},
                std::vector<uint16_t>{static_cast<uint16_t>(to->port())}, secret_,
                NodeOfGeneration{node.engine.config().node_rank, node.generation}, events_of(node));
    });
    node.relink->after(Time(0));
}

void SimulatedNodes::elect(SimulatedNode& node, const NodeActions& actions) {
    follower_.broker.emplace(node.engine.config(), getuid(), *actions.elected, engine_now());
    for (const auto& [supporter, message] : actions.supporters)
        perform(follower_.broker->on_message(supporter, message, engine_now()));
    perform(node, node.engine.on_joined("127.0.0.1", engine_now()));
}

void SimulatedNodes::perform(const BrokerActions& actions) {
    for (const auto& [node, message] : actions.sends) {
        if (node + 1 == shape_.nodes)
            perform(*nodes_.back(), nodes_.back()->engine.on_broker(message.whole(), engine_now()));
        else
            follower_.server->send(node, message);
    }
    if (actions.renew_ports) perform(follower_.broker->on_ports(MasterPorts{1, 2}, engine_now()));
    if (const auto next = follower_.broker->next_deadline())
        follower_.timer->after(std::max(Time(0), *next - engine_now()));
}

// As keepers and their ranks would.
void SimulatedNodes::follow_restart(SimulatedNode& node, const NodeActions& actions) {
    if (actions.no_other_life) die("the step ended");
    const auto tell_of_all = [&](ControlEvent::Kind kind, int value) {
        for (uint32_t rank = 0; rank < shape_.ranks_per_node; ++rank)
            perform(node, node.engine.on_keeper({kind, rank, value}, engine_now()));
    };
    if (actions.signal_ranks) {
        for (uint32_t rank = 0; rank < shape_.ranks_per_node; ++rank)
            perform(node, node.engine.on_rank_closed(rank, engine_now()));
        tell_of_all(ControlEvent::Kind::exit, *actions.signal_ranks);
    }
    if (actions.clear_ranks) perform(node, node.engine.on_cleared(engine_now()));
    if (!actions.next_life) return;
    node.generation = actions.next_life->generation;
    on_next_life_();
    tell_of_all(ControlEvent::Kind::task, 1);
}

void SimulatedNodes::kept_rank_dies(uint32_t rank, uint64_t step) {
    SimulatedNode& node = node_of(rank);
    wire::FromRank message;
    if (node.generation > 0) {  // before that, join has said it
        message.mutable_hello()->set_protocol(kProtocol);
        message.mutable_hello()->set_world_size(shape_.world());
        message.mutable_hello()->set_rank(rank);
        message.mutable_hello()->set_generation(node.generation);
        say(rank, message);
    }
    message.mutable_progress()->set_step(step);
    say(rank, message);
    perform(node, node.engine.on_rank_closed(local(rank), engine_now()));
    perform(node, node.engine.on_keeper({ControlEvent::Kind::exit, local(rank), SIGKILL}, engine_now()));
}

void SimulatedNodes::node_dies(uint32_t number) {
    SimulatedNode& node = *nodes_.at(number - 1);
    node.is_dead = true;
    node.link->finish();
}

void SimulatedNodes::tick(SimulatedNode& node) {
    if (node.is_dead) return;
    const Time now = engine_now();
    if (auto next = node.engine.next_deadline(); next && now >= *next) perform(node, node.engine.tick(now));
}

void SimulatedNodes::tick() {
    for (auto& node : nodes_) tick(*node);
    ticks_.after(kTick);
}

void SimulatedNodes::run_until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
        event_base_loop(base_, EVLOOP_ONCE);
        if (std::chrono::steady_clock::now() > end) die("what was waited for has not come within 60 s");
    }
}

void SimulatedNodes::join() {
    run_until([this] { return joined_ == nodes_.size() && planned_ == nodes_.size(); });
    wire::FromRank hello;
    hello.mutable_hello()->set_protocol(kProtocol);
    hello.mutable_hello()->set_world_size(shape_.world());
    for (uint32_t rank = first_rank(); rank < shape_.world(); ++rank) {
        hello.mutable_hello()->set_rank(rank);
        say(rank, hello);
    }
}

void SimulatedNodes::say(uint32_t rank, const wire::FromRank& message) {
    SimulatedNode& node = node_of(rank);
    perform(node, node.engine.on_rank(local(rank), message, engine_now()));
}

void SimulatedNodes::stands_still(uint32_t rank, const wire::Stillness& still) {
    perform(node_of(rank), node_of(rank).engine.on_stillness(local(rank), still));
}

void SimulatedNodes::rank_dies(uint32_t rank, int wait_status) {
    SimulatedNode& node = node_of(rank);
    perform(node, node.engine.on_rank_closed(local(rank), engine_now()));
    perform(node, node.engine.on_control({ControlEvent::Kind::exit, local(rank), wait_status}, engine_now()));
}

void SimulatedNodes::leave() {
    leaving_ = true;
    wire::FromRank goodbye;
    goodbye.mutable_goodbye();
    for (uint32_t rank = first_rank(); rank < shape_.world(); ++rank) {
        say(rank, goodbye);
        perform(node_of(rank),
                node_of(rank).engine.on_control({ControlEvent::Kind::exit, local(rank), 0}, engine_now()));
    }
    for (auto& node : nodes_)
        perform(*node, node->engine.on_control({ControlEvent::Kind::end}, engine_now()));
    run_until([this] { return left_ == nodes_.size(); });
}

}  // namespace dp::bench
