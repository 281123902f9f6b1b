// SPDX-License-Identifier: Apache-2.0
//
// A step without a socket: one Broker, and those that are elected after it, a Node a node, and the messages between
// them delivered in order. Tests drive the clock.
#pragma once

#include <algorithm>
#include <csignal>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/broker.hpp"
#include "engine/node.hpp"
#include "framing.hpp"

namespace dp {

class Simulation {
 public:
    struct RankView {
        bool welcome = false;
        std::map<uint64_t, wire::Reply> replies;
        std::string aborted;
        std::vector<uint32_t> dead;  // that it was told of
        std::string peer_lost;
        std::optional<wire::NextWorld> next_world;
    };

    Simulation(uint32_t node_count, uint32_t ranks_per_node, Time timeout = Time(10000),
               bool want_table = false, FailureAction on_failure = FailureAction::abort,
               const Settings& more = {}, uint32_t dead_after_seconds = 0)
        : ranks((node_count - more.spares.value_or(0)) * ranks_per_node), ranks_per_node_(ranks_per_node) {
        DaemonConfig config;
        config.job_id = 1;
        config.world_size = static_cast<uint32_t>(ranks.size());
        config.tasks = ranks_per_node;
        config.dead_after_seconds = dead_after_seconds;
        config.nodes = node_count;
        config.node_list = "gpu[0-" + std::to_string(node_count - 1) + "]";
        config.master_addr = "10.0.0.1";
        config.master_port = 29000;
        config.broker_host = host(0);
        config.settings.timeout_seconds = static_cast<uint32_t>(timeout.count() / 1000);
        config.settings.verbose = want_table;
        config.settings.on_failure = on_failure;
        config.settings = with_defaults(merge(config.settings, more));
        kept_ = config.settings.restarts_ranks();
        broker = std::make_unique<Broker>(config, 0, now);
        for (uint32_t n = 0; n < node_count; ++n) {
            config.node_rank = n;
            config.host = host(n);
            config.broker = n == 0;
            config.ranks.clear();
            for (uint32_t rank = n * ranks_per_node; rank < (n + 1) * ranks_per_node && rank < ranks.size();
                 ++rank) {
                config.ranks.push_back(rank);
                homes_.push_back({n, rank - n * ranks_per_node});
            }
            const auto port =
                static_cast<uint16_t>(n == 0 || !config.settings.outlives_nodes() ? 0 : 20000 + n);
            nodes.push_back(std::make_unique<Node>(config, NodeFacts{{address(n)}, false, port}, now));
            links_.push_back(0);
            plans.emplace_back();
            no_plans.emplace_back();
            signals.emplace_back();
            lives.emplace_back();
            spared.emplace_back();
            survivors.emplace_back();
            no_other_life.push_back(false);
            keepers_killed.push_back(false);
        }
    }

    static std::string host(uint32_t node) { return "gpu" + std::to_string(node); }
    uint32_t node_of(uint32_t rank) const { return homes_[rank].node; }

    static std::string address(uint32_t node) { return "10.0.0." + std::to_string(node + 1); }
    void join(uint32_t node) { perform(node, nodes[node]->on_joined(address(node), clock(node))); }
    void join_all() {
        for (uint32_t n = 0; n < nodes.size(); ++n) join(n);
    }
    void start(uint32_t rank) {
        control(rank, {ControlEvent::Kind::task, homes_[rank].task, static_cast<int>(1000 + rank)});
    }
    // With the closing of its connection, where it still has one.
    void exit(uint32_t rank, int status) {
        const Home home =
            homes_[rank];  // the exit may begin a generation in which it has another one, or none
        exit_first(rank, status);
        vanish(home);
    }
    // The launcher's task itself, which with --dp-on-failure=restart is the keeper.
    void end_keeper(uint32_t rank, int status) { end_task(node_of(rank), homes_[rank].task, status); }
    void end_task(uint32_t node, uint32_t task, int status) {
        perform(node, nodes[node]->on_control({ControlEvent::Kind::exit, task, status}, clock(node)));
    }
    void tell_to_end(uint32_t rank) { control(rank, {ControlEvent::Kind::told, homes_[rank].task, SIGTERM}); }
    void tell_task(uint32_t node, uint32_t task) {
        perform(node, nodes[node]->on_keeper({ControlEvent::Kind::told, task, SIGTERM}, clock(node)));
    }
    void start_all() {
        for (uint32_t rank = 0; rank < ranks.size(); ++rank) start(rank);
    }
    // Nothing is left of the node's ranks.
    void clear(uint32_t node) { perform(node, nodes[node]->on_cleared(clock(node))); }
    // The news of the exit alone: its connection may still hold last words.
    void exit_first(uint32_t rank, int status) {
        control(rank, {ControlEvent::Kind::exit, homes_[rank].task, status});
    }
    // The same of a task whose rank may have another home by now.
    void exit_of_task(uint32_t node, uint32_t task, int status) {
        perform(node, nodes[node]->on_keeper({ControlEvent::Kind::exit, task, status}, clock(node)));
        vanish(Home{node, task});
    }
    // What /proc says of the rank.
    void look(uint32_t rank, bool stopped) {
        perform(node_of(rank), nodes[node_of(rank)]->on_look(homes_[rank].task, stopped));
    }
    // Its watcher says that it has not moved for a minute.
    void still(uint32_t rank, const std::string& where, bool waits) {
        wire::Stillness said;
        said.set_for_ms(60000);
        said.set_where(where);
        said.set_waits_for_others(waits);
        said.set_place(std::hash<std::string>()(where));
        perform(node_of(rank), nodes[node_of(rank)]->on_stillness(homes_[rank].task, said));
    }
    void moves(uint32_t rank) {
        perform(node_of(rank), nodes[node_of(rank)]->on_stillness(homes_[rank].task, std::nullopt));
    }
    // What was found of the NCCL of those that were to be read, in that order.
    void warn(const std::vector<std::string>& warnings) {
        const auto asked = std::exchange(nccl_to_read, {});
        for (size_t i = 0; i < asked.size(); ++i)
            perform(asked[i].first, nodes[asked[i].first]->on_nccl_warning(asked[i].second, warnings.at(i)));
    }
    void end(uint32_t node) {
        perform(node, nodes[node]->on_control({ControlEvent::Kind::end}, clock(node)));
    }

    // A rank's connection has the number of its task in the whole step, plus one.
    ConnectionId connection_of(uint32_t node, uint32_t task) const {
        return node * ranks_per_node_ + task + 1;
    }
    ConnectionId connection_of(uint32_t rank) const {
        return connection_of(homes_[rank].node, homes_[rank].task);
    }
    void hello(uint32_t rank, uint32_t protocol = kProtocol) {
        wire::FromRank message;
        message.mutable_hello()->set_protocol(protocol);
        message.mutable_hello()->set_rank(rank);
        message.mutable_hello()->set_world_size(static_cast<uint32_t>(ranks.size()));
        message.mutable_hello()->set_generation(lives[node_of(rank)] ? lives[node_of(rank)]->generation : 0);
        from_rank(rank, message);
    }
    RankView* view_of(ConnectionId connection) {
        const auto number = static_cast<uint32_t>(connection - 1);
        const auto& of_node = nodes[number / ranks_per_node_]->config().ranks;
        const uint32_t task = number % ranks_per_node_;
        return task < of_node.size() && of_node[task] < ranks.size() ? &ranks[of_node[task]] : nullptr;
    }

    void enable_rejoin(uint32_t rank) { from_rank(rank, wrap(&wire::FromRank::mutable_enable_rejoin)); }
    void rejoin(uint32_t rank, uint32_t generation = 0) {
        wire::FromRank message;
        message.mutable_rejoin()->set_generation(generation);
        from_rank(rank, message);
    }
    // Its training has taken that many steps.
    void progress(uint32_t rank, uint64_t step) {
        wire::FromRank message;
        message.mutable_progress()->set_step(step);
        from_rank(rank, message);
    }
    void hello_all() {
        for (uint32_t rank = 0; rank < ranks.size(); ++rank) hello(rank);
    }
    void goodbye(uint32_t rank) {
        wire::FromRank message;
        message.mutable_goodbye();
        from_rank(rank, message);
    }
    void request(uint32_t rank, uint64_t id, wire::Request request, Time timeout = Time(5000)) {
        request.set_id(id);
        request.set_timeout_ms(timeout.count());
        wire::FromRank message;
        *message.mutable_request() = std::move(request);
        from_rank(rank, message);
    }
    void arrive(uint32_t rank, uint64_t id, const std::string& group = "world",
                std::vector<uint32_t> members = {}, const std::string& value = "", uint64_t sequence = 0,
                Time timeout = Time(5000), uint32_t roots = 1) {
        wire::Request r;
        r.mutable_arrive()->set_group(group);
        r.mutable_arrive()->set_roots(roots);
        for (uint32_t member : members) r.mutable_arrive()->add_members(member);
        r.mutable_arrive()->set_sequence(sequence);
        r.mutable_arrive()->set_value(value);
        request(rank, id, std::move(r), timeout);
    }
    void vanish(uint32_t rank) { vanish(homes_[rank]); }
    void from_rank(uint32_t rank, const wire::FromRank& message) {
        const uint32_t node = node_of(rank);
        if (is_query(message))
            perform(node, nodes[node]->on_query(connection_of(rank), message));
        else
            perform(node, nodes[node]->on_rank(connection_of(rank), message, clock(node)));
    }
    // Of a dpctl beside the rank, whose connection has the same number.
    void ask_usage(uint32_t rank) { from_rank(rank, wrap(&wire::FromRank::mutable_usage)); }
    void ask_stacks(uint32_t rank, std::initializer_list<uint32_t> wanted = {}) {
        wire::FromRank question;
        question.mutable_stacks()->mutable_ranks()->Add(wanted.begin(), wanted.end());
        from_rank(rank, question);
    }
    // What the node's daemon has looked up, measured or read.
    void answer(uint32_t node, wire::FromNode found) {
        perform(node, nodes[node]->on_answer(std::move(found)));
    }
    void measure(uint32_t node) { answer(node, wrap(&wire::FromNode::mutable_usage, usage_of(node))); }
    void lose_broker(uint32_t node) {
        perform(node, nodes[node]->on_broker_lost("its connection closed", clock(node)));
    }
    void lose_launcher(uint32_t node) { perform(node, nodes[node]->on_launcher_lost()); }
    // Somebody connects to the broker's node; the nodes' kernels say `owner`, or nothing at all.
    void connect(const wire::WhoOwns& asked) { perform_broker(0, broker->on_connection(asked, now)); }
    void open_torch_store(uint32_t node) { perform_broker(0, broker->on_torch_arrival(node, now)); }
    // Any message, as if a relay had sent it.
    void from_node(uint32_t node, const wire::FromNode& message) {
        perform_broker(0, broker->on_message(node, message, now));
    }
    // Likewise, as if its broker had sent it (no plan: where ranks are, it knows); or as if a relay had sent it to the
    // node, which is not the broker.
    void to_node(uint32_t node, const wire::ToNode& message) {
        if (message.has_plan()) return;
        perform(node, nodes[node]->on_broker(message, clock(node)));
    }
    void support(uint32_t node, uint32_t relay, const wire::FromNode& message) {
        perform(node, nodes[node]->on_supporter(relay, message, clock(node)));
    }
    // Its connection to its broker closes.
    void cut(uint32_t node) { close_at(links_[node], node); }
    // The daemon of a broker, or of one that others support, is killed, and its connections close.
    void kill_daemon(uint32_t node) {
        frozen.insert(node);
        close_all(node);
        if (links_[node] != node) later([this, node] { close_at(links_[node], node); });
    }
    Broker* broker_at(uint32_t node) {
        if (node == 0) return broker.get();
        const auto found = elected.find(node);
        return found == elected.end() ? nullptr : found->second.get();
    }

    // In steps, as deadlines would wake a loop.
    void pass(Time time, Time step = Time(50)) {
        for (Time end = now + time; now < end;) {
            now = std::min(end, now + step);
            for (uint32_t n = 0; n < nodes.size(); ++n)
                if (!frozen.contains(n)) perform(n, nodes[n]->tick(clock(n)));
            for (uint32_t n = 0; n < nodes.size(); ++n)
                if (Broker* there = broker_at(n); there && !frozen.contains(n))
                    perform_broker(n, there->tick(clock(n)));
        }
    }

    // With is_manual: the next message of one of the links, which keep their own order; false: there is none.
    bool deliver_one(uint64_t choice) {
        const size_t waiting = up_.size() + down_.size() + later_.size();
        if (waiting == 0) return false;
        const size_t picked = choice % waiting;
        busy_ = true;
        if (picked < up_.size()) {
            const auto first = first_of(up_, up_[picked]);
            if (!waits(first->node, first->broker)) deliver_up(first);
        } else if (picked < up_.size() + down_.size()) {
            const auto first = first_of(down_, down_[picked - up_.size()]);
            if (!waits(first->node, first->broker)) deliver_down(first);
        } else {
            const auto at = later_.begin() + static_cast<ptrdiff_t>(picked - up_.size() - down_.size());
            const auto event = std::move(*at);
            later_.erase(at);
            event();
        }
        busy_ = false;
        settle();
        return true;
    }

    bool logged(const std::string& text) const {
        for (const auto& line : log)
            if (line.find(text) != std::string::npos) return true;
        return false;
    }

    bool is_manual = false;       // messages wait for deliver_one
    bool end_by_signals = false;  // ranks, at once
    bool clears_late = false;     // what ranks have started ends as it happens
    Time now{1000};
    std::unique_ptr<Broker> broker;                       // the first, on node 0
    std::map<uint32_t, std::unique_ptr<Broker>> elected;  // by node
    std::vector<std::unique_ptr<Node>> nodes;
    std::vector<RankView> ranks;
    std::vector<std::optional<NodePlan>> plans;
    std::vector<std::optional<std::string>> no_plans;
    std::vector<std::vector<std::pair<Time, int>>> signals;
    std::vector<std::vector<std::set<uint32_t>>> spared;  // tasks, by signal
    std::vector<std::optional<NodePlan>> lives;           // of the nodes' keepers, the last one
    std::vector<std::set<uint32_t>> survivors;            // tasks to whose keepers that does not go
    std::vector<std::pair<uint32_t, uint32_t>> to_kill;   // node and task
    std::vector<bool> no_other_life;
    std::vector<bool> keepers_killed;
    std::set<uint32_t> uncleared;         // nodes where something of the ranks is left
    std::vector<uint32_t> to_clear;       // nodes, as they were asked
    std::optional<uint32_t> killed_rank;  // the last one
    std::string no_ports;                 // why there are none for the next generation
    std::vector<std::string> log;
    std::vector<std::pair<uint32_t, wire::MeasureLink>> links_to_measure;    // and by which node
    std::vector<std::pair<uint32_t, NodeActions::NcclToRead>> nccl_to_read;  // and their nodes
    std::vector<std::pair<uint32_t, wire::Hang>> hangs;                      // that nodes are to record
    // Nodes whose daemon is stopped, or cut off without a word: nothing comes from there or gets there.
    std::set<uint32_t> frozen;
    std::set<uint32_t> cut_off;     // nodes that live, but whose network is gone
    std::set<uint32_t> other_part;  // of a network that is cut in two
    std::optional<wire::Owner> owner;
    // How far a node's clock is before the broker's.
    std::map<uint32_t, Time> clock_ahead;
    wire::StepStatus told_status;  // the last one that somebody was told
    std::vector<std::pair<uint32_t, wire::WhoOwns>> lookups;
    std::vector<PeerAuthorization::Decision> decisions;
    std::vector<std::pair<uint32_t, wire::StepUsage>> told_usage;  // by rank
    std::vector<wire::StepStacks> told_stacks;
    std::vector<std::pair<uint32_t, NodeActions::StacksToRead>>
        stacks_to_read;  // by node; nobody answers by itself
    // What /proc and the pages of a node say; nodes in `unmeasured` take their time.
    std::function<wire::NodeUsage(uint32_t node)> usage_of = [](uint32_t) { return wire::NodeUsage(); };
    std::set<uint32_t> unmeasured;
    std::vector<uint32_t> measured;  // nodes, as they were asked
    std::vector<NodeActions::Page> pages;
    size_t messages_to_nodes = 0;
    size_t messages_to_nobody = 0;  // to nodes that have not joined or are lost
    size_t messages_to_broker = 0;
    size_t largest_to_broker = 0;  // in bytes

 private:
    uint32_t ranks_per_node_;
    struct Home {
        uint32_t node = 0;
        uint32_t task = 0;
    };
    std::vector<Home> homes_;  // by rank
    bool kept_ = false;
    template <typename Message>
    struct OnItsWay {
        uint32_t node;
        uint32_t broker;
        Message message;
    };
    std::deque<OnItsWay<wire::FromNode>> up_;
    std::deque<OnItsWay<wire::ToNode>> down_;
    std::deque<std::function<void()>> later_;  // connections that open or close
    std::vector<uint32_t> links_;              // by node: whose connection it has, or seeks
    std::set<uint32_t> opening_;               // nodes whose connection does not stand yet
    std::set<uint32_t> closed_;                // brokers that have left
    bool busy_ = false;

    Time clock(uint32_t node) const {
        auto ahead = clock_ahead.find(node);
        return ahead == clock_ahead.end() ? now : now + ahead->second;
    }

    std::set<uint32_t> survivors_of(uint32_t node) const {
        std::set<uint32_t> out;
        for (uint32_t task = 0; task < ranks_per_node_; ++task)
            if (nodes[node]->survives(task)) out.insert(task);
        return out;
    }

    void vanish(const Home& home) {
        perform(home.node,
                nodes[home.node]->on_rank_closed(connection_of(home.node, home.task), clock(home.node)));
    }
    void control(uint32_t rank, const ControlEvent& event) {
        Node& node = *nodes[node_of(rank)];
        const Time at = clock(node_of(rank));
        perform(node_of(rank), kept_ ? node.on_keeper(event, at) : node.on_control(event, at));
    }

    void perform(uint32_t node, NodeActions actions) {
        log.insert(log.end(), actions.log.begin(), actions.log.end());
        if (actions.plan) plans[node] = actions.plan;
        for (const auto& link : actions.measure_links) links_to_measure.emplace_back(node, link);
        for (const auto& of : actions.read_nccl) nccl_to_read.emplace_back(node, of);
        if (actions.hang) hangs.emplace_back(node, *actions.hang);
        for (const auto* plan : {&actions.plan, &actions.next_life})
            if (*plan && (*plan)->place) settle_in(node, *(*plan)->place);
        if (actions.no_plan) no_plans[node] = actions.no_plan;
        for (const uint32_t task : actions.kill_ranks) killed_rank = node * ranks_per_node_ + task;
        for (const uint32_t task : actions.kill_ranks) to_kill.emplace_back(node, task);
        if (actions.next_life) lives[node] = actions.next_life;
        if (actions.next_life) survivors[node] = actions.survivors;
        if (actions.no_other_life) no_other_life[node] = true;
        if (actions.kill_keepers) keepers_killed[node] = true;
        if (actions.clear_ranks) {
            to_clear.push_back(node);
            if (clears_late)
                later([this, node] { clear(node); });
            else if (!uncleared.contains(node))
                clear(node);
        }
        if (actions.signal_ranks) signals[node].emplace_back(now, *actions.signal_ranks);
        if (actions.signal_ranks) spared[node].push_back(survivors_of(node));
        if (actions.signal_ranks && end_by_signals)
            for (uint32_t task = 0; task < ranks_per_node_; ++task)
                later([this, node, task] {
                    perform(node,
                            nodes[node]->on_keeper({ControlEvent::Kind::exit, task, SIGKILL}, clock(node)));
                });
        for (const auto& [connection, parts] : actions.to_ranks) {
            const wire::ToRank message = parts.whole();
            RankView* view = view_of(connection);
            if (!view) continue;  // of a world that was larger
            RankView& rank = *view;
            if (message.has_welcome()) rank.welcome = true;
            if (message.has_reply()) rank.replies[message.reply().id()] = message.reply();
            if (message.has_abort()) rank.aborted = message.abort().reason();
            if (message.has_peer_lost()) rank.peer_lost = message.peer_lost().reason();
            if (message.has_next_world()) rank.next_world = message.next_world();
            for (uint32_t dead : message.abort().dead()) rank.dead.push_back(dead);
            for (uint32_t dead : message.deaths().ranks()) rank.dead.push_back(dead);
        }
        for (const auto& [asker, message] : actions.answers) {
            RankView* view = view_of(asker);
            if (!view) continue;
            const auto rank = static_cast<uint32_t>(view - ranks.data());
            if (message.has_reply()) view->replies[0] = message.reply();
            if (message.has_status()) told_status = message.status();
            if (message.has_usage()) told_usage.emplace_back(rank, message.usage());
            if (message.has_stacks()) told_stacks.push_back(message.stacks());
        }
        for (const auto& asked : actions.lookups) {
            lookups.emplace_back(node, asked);
            if (!owner) continue;
            wire::Owner said = *owner;
            said.set_connection(asked.connection());
            perform(node, nodes[node]->on_answer(wrap(&wire::FromNode::mutable_owner, said)));
        }
        pages.insert(pages.end(), actions.pages.begin(), actions.pages.end());
        for (const auto& read : actions.read_stacks) stacks_to_read.emplace_back(node, read);
        if (actions.measure) {
            measured.push_back(node);
            if (!unmeasured.contains(node)) measure(node);
        }
        messages_to_broker += actions.to_broker.size();
        for (const auto& message : actions.to_broker)
            largest_to_broker = std::max(largest_to_broker, message.ByteSizeLong());
        if (actions.seek || actions.disconnect) relink(node, actions.seek);
        for (uint32_t supporter : actions.refused)
            later([this, node, supporter] {
                if (links_[supporter] == node && reaches(supporter, node)) lose_link(supporter);
            });
        for (auto& message : actions.to_broker) up_.push_back({node, links_[node], std::move(message)});
        if (actions.elected) {
            links_[node] = node;
            elected[node] = std::make_unique<Broker>(nodes[node]->config(), 0, *actions.elected, clock(node));
            perform(node, nodes[node]->on_joined(address(node), clock(node)));
            for (const auto& [supporter, message] : actions.supporters)
                perform_broker(node, elected[node]->on_message(supporter, message, clock(node)));
        }
        settle();
    }
    // The old connection closes, and a new one opens if it can.
    void relink(uint32_t node, const std::optional<wire::Roll::Successor>& to) {
        const uint32_t old = links_[node];
        const auto is_of_old = [&](const auto& one) { return one.node == node && one.broker == old; };
        std::erase_if(up_, is_of_old);
        std::erase_if(down_, is_of_old);
        if (old != node) later([this, node, old] { close_at(old, node); });
        links_[node] = node;
        opening_.erase(node);
        if (!to) return;
        const uint32_t target = to->node_rank();
        links_[node] = target;
        opening_.insert(node);
        later([this, node, target] {
            if (links_[node] != target || !reaches(node, target) || frozen.contains(node)) return;
            // Until now it spoke to an earlier connection, if at all.
            std::erase_if(down_, [&](const auto& one) { return one.node == node && one.broker == target; });
            opening_.erase(node);
            if (nodes[node]->generation() == nodes[target]->generation())  // as their proofs have it
                perform(node, nodes[node]->on_joined(address(node), clock(node)));
            else
                lose_link(node);
        });
    }
    void close_all(uint32_t at) {
        for (uint32_t other = 0; other < nodes.size(); ++other)
            if (other != at && links_[other] == at && reaches(other, at))
                later([this, at, other] {
                    if (links_[other] == at) lose_link(other);
                });
    }
    void lose_link(uint32_t node) {
        if (!frozen.contains(node))
            perform(node, nodes[node]->on_broker_lost("its connection closed", clock(node)));
    }
    // `at`, which may be a broker, sees the node's connection close.
    void close_at(uint32_t at, uint32_t node) {
        if (frozen.contains(at) || !reaches(at, node)) return;
        if (Broker* there = broker_at(at))
            perform_broker(at, there->on_lost(node, "its connection closed", clock(at)));
        else
            nodes[at]->on_supporter_lost(node);
    }
    void later(std::function<void()> event) {
        later_.push_back(std::move(event));
        settle();
    }
    // Whether the network carries what one says to the other.
    bool reaches(uint32_t a, uint32_t b) const {
        return a == b || (!cut_off.contains(a) && !cut_off.contains(b) &&
                          other_part.contains(a) == other_part.contains(b));
    }
    void perform_broker(uint32_t at, BrokerActions actions) {
        log.insert(log.end(), actions.log.begin(), actions.log.end());
        decisions.insert(decisions.end(), actions.decisions.begin(), actions.decisions.end());
        for (const auto& [node, message] : actions.sends) {
            ++messages_to_nodes;
            const auto& there = broker_at(at)->membership().nodes().at(node);
            if (!there.joined || there.lost) ++messages_to_nobody;
            down_.push_back({node, at, message.whole()});
        }
        for (uint32_t node : actions.refused)
            later([this, at, node] {
                if (links_[node] == at && reaches(node, at)) lose_link(node);
            });
        if (actions.renew_ports)
            perform_broker(
                at, broker_at(at)->on_ports(no_ports.empty() ? Try<MasterPorts>(MasterPorts{29500, 29501})
                                                             : Try<MasterPorts>(fail(no_ports)),
                                            clock(at)));
        if (broker_at(at)->finished() && closed_.insert(at).second) close_all(at);
        settle();
    }
    void settle() {
        if (busy_) return;
        busy_ = true;
        if (is_manual) settle_own();
        while (!is_manual && (!up_.empty() || !down_.empty() || !later_.empty())) {
            if (!up_.empty()) {
                deliver_up(up_.begin());
            } else if (!down_.empty()) {
                deliver_down(down_.begin());
            } else {
                const auto event = std::move(later_.front());
                later_.pop_front();
                event();
            }
        }
        busy_ = false;
    }
    // Between a broker and its own node there is no network.
    void settle_own() {
        const auto is_own = [](const auto& one) { return one.node == one.broker; };
        for (;;) {
            if (const auto up = std::ranges::find_if(up_, is_own); up != up_.end())
                deliver_up(up);
            else if (const auto down = std::ranges::find_if(down_, is_own); down != down_.end())
                deliver_down(down);
            else
                return;
        }
    }
    template <typename Link>
    static typename Link::iterator first_of(Link& link, const typename Link::value_type& like) {
        return std::find_if(link.begin(), link.end(), [&](const auto& one) {
            return one.node == like.node && one.broker == like.broker;
        });
    }
    // It is sent again and again until the network is whole.
    bool waits(uint32_t node, uint32_t at) const {
        return !reaches(node, at) && !frozen.contains(node) && !frozen.contains(at) && links_[node] == at;
    }
    // A message between the node and the broker gets there.
    bool arrives(uint32_t node, uint32_t at) const {
        return node == at ||
               (!frozen.contains(node) && !frozen.contains(at) && reaches(node, at) && links_[node] == at);
    }
    void settle_in(uint32_t node, const NodePlan::Place& place) {
        ranks.resize(place.world_size);
        homes_.resize(place.world_size);
        for (uint32_t task = 0; task < place.ranks.size(); ++task) homes_[place.ranks[task]] = {node, task};
    }
    void deliver_up(std::deque<OnItsWay<wire::FromNode>>::iterator one) {
        auto [node, at, message] = std::move(*one);
        up_.erase(one);
        if (!arrives(node, at)) return;
        if (Broker* there = broker_at(at))
            perform_broker(at, there->on_message(node, message, clock(at)));
        else
            perform(at, nodes[at]->on_supporter(node, message, clock(at)));
    }
    void deliver_down(std::deque<OnItsWay<wire::ToNode>>::iterator one) {
        auto [node, at, message] = std::move(*one);
        down_.erase(one);
        if (arrives(node, at) && !opening_.contains(node))
            perform(node, nodes[node]->on_broker(message, clock(node)));
    }
};

}  // namespace dp
