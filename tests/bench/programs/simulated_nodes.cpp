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
    for (uint32_t n = 1; n < shape.nodes; ++n) {
        auto& node = nodes_.emplace_back(std::make_unique<SimulatedNode>(config_of(n), engine_now()));
        node->link =
            std::make_unique<BrokerLink>(base_, std::vector<std::string>{"127.0.0.1"},
                                         std::vector<uint16_t>{broker.port()}, *secret, n, events_of(*node));
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
            [this, &node](const std::string& why) {
                if (node.is_dead) return;
                if (!leaving_) die("a simulated node lost the broker: " + why);
                ++left_;
            },
            [](uint32_t) { die("the broker is of another version"); }};
}

void SimulatedNodes::perform(SimulatedNode& node, const NodeActions& actions) {
    if (actions.plan) ++planned_;
    for (const auto& message : actions.to_broker) node.link->send(message);
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
    if (actions.clear_ranks) perform(node, node.engine.on_cleared());
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
