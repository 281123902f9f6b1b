// SPDX-License-Identifier: Apache-2.0
#include "loop/daemon.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/hostlist.hpp"
#include "common/interfaces.hpp"
#include "common/phase_page.hpp"
#include "common/plan_file.hpp"
#include "common/read_file.hpp"
#include "engine/metrics.hpp"
#include "framing.hpp"
#include "loop/socket_owner.hpp"

namespace dp {
namespace {

// The daemon ends when its launcher says so, and stays as long as a rank may need it (a checkpoint on
// SIGTERM, say); SIGKILL ends it with the step. SIGTERM and SIGINT reach it if the process tracker signals
// the whole container, and from dpctl: ranks that end after that were told to.
constexpr std::array kEndSignals = {SIGTERM, SIGINT, SIGQUIT, SIGHUP};
// These are for the ranks (srun --signal, scancel -s) and mean nothing to a daemon.
constexpr std::array kIgnoredSignals = {SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF,
                                        SIGXCPU, SIGXFSZ, SIGTTIN, SIGTTOU, SIGIO,     SIGPWR};

// By how many seconds the clock that dates files may be behind this node's.
constexpr time_t kSkewOfFileServers = 30;

// How long a table waits for tasks that report their tiles themselves.
constexpr Time kTilesCome{1000};

// With the kernel's coarse clock libevent would wake several times for each timer before it counts as due.
event_base* new_event_base() {
    event_config* config = event_config_new();
    event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV);
    event_base* base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

// The port where this relay would take over as the broker; without a socket if it cannot.
BoundPort port_of_successor(const DaemonConfig& config) {
    if (config.broker || !config.settings.outlives_nodes()) return {};
    auto port = listen_on_first_free(binding_order(config.candidates, read_ephemeral_range()), "a broker");
    if (port) return std::move(*port);
    log_line("node " + config.host + " cannot take over if the broker is lost: " + port.error().message);
    return {};
}

NodeFacts facts_of_this_node(const DaemonConfig& config, uint16_t port) {
    NodeFacts facts;
    facts.port = port;
    if (config.settings.serves_torch())
        for (auto& one : interface_addresses()) facts.addresses.push_back(std::move(one.address));
    // srun -e with a separate file per node or task: nobody reads the messages of rank 0's node there.
    struct stat found {};
    facts.own_stderr = fstat(STDERR_FILENO, &found) == 0 && S_ISREG(found.st_mode);
    return facts;
}

}  // namespace

Daemon::Daemon(const DaemonConfig& config, const std::string& secret)
    : base_(new_event_base()),
      rejected_(config.host),
      clock_(steady_now()),
      tasks_(config.tasks, config.job_id == 0 ? Cgroups{} : cgroups_of_step(read_file("/proc/self/cgroup")),
             config.settings.restarts_ranks()),
      successor_port_(port_of_successor(config)),
      node_(config, facts_of_this_node(config, successor_port_.port), now()),
      ranks_(
          base_.get(), kFdRanks, rejected_,
          [this](ConnectionId id, const wire::FromRank& message) {
              if (message.has_goodbye()) note_ranks();
              perform(is_query(message) ? node_.on_query(id, message) : node_.on_rank(id, message, now()));
          },
          [this](ConnectionId id) {
              note_ranks();
              usage_.close(id);
              perform(node_.on_rank_closed(id, now()));
          }),
      gpus_(gpu_use_command(config_.host, config_.tiles_conf)),
      gpus_of_paces_(gpu_use_command(config_.host, config_.tiles_conf), 2 * kGpusSeenEvery),
      stacks_(base_.get(), {dpctl_program(), "read-stacks"},
              [this](wire::NodeStacks stacks) {
                  perform(node_.on_answer(wrap(&wire::FromNode::mutable_stacks, std::move(stacks))));
              }),
      ledger_(config_.tasks, config_.settings.timeout(), monotonic_ns()),
      metrics_(
          base_.get(), kFdRanks, rejected_, config_.exporter, [this] { return metrics(); },
          [this](ConnectionId id) {
              wire::FromRank query;
              query.mutable_status()->set_summary(true);
              perform(node_.on_query(id, query));
          }),
      timer_(base_.get(),
             [this] {
                 perform(node_.tick(now()));
                 if (broker_) perform(broker_->tick(now()));
             }),
      leave_timer_(base_.get(), [this] { event_base_loopbreak(base_.get()); }),
      look_timer_(base_.get(), [this] { look_at_ranks(); }),
      sample_timer_(base_.get(), [this] { sample_regularly(); }),
      clear_timer_(base_.get(), [this] { clear_ranks(); }),
      secret_(secret),
      relink_timer_(base_.get(), [this] { relink(); }) {
    if (config_.settings.wants_record()) make_recorder();
    watch_signals();
    watch_control();
    if (config_.settings.tasks_tell())
        keepers_.emplace(
            base_.get(), kFdKeepers, config_.tasks, rejected_,
            [this](uint32_t local_rank) {
                if (!config_.settings.restarts_ranks()) return pid_t{0};  // a task is the rank itself
                read_control_packets();  // the launcher told of its task before that connected
                return tasks_.keeper_of(local_rank);
            },
            [this](const ControlEvent& event) {
                if (event.kind == ControlEvent::Kind::environment) return note_environment(event);
                tasks_.note_keeper(event);
                note_nccl_file(event);
                if (event.kind == ControlEvent::Kind::exit) note_ranks();
                perform(node_.on_keeper(event, now()));
            });
    if (config_.settings.hang_timeout() > Time(0))
        watcher_.emplace(
            base_.get(),
            std::vector<std::string>{dpctl_program(), "watch-ranks", "--timeout",
                                     std::to_string(config_.settings.hang_timeout().count())},
            [this](uint32_t local_rank, const wire::Watched& news) {
                look_at_ledger();
                news.has_still() ? void(still_[local_rank] = news.calls()) : void(still_.erase(local_rank));
                if (news.unwatchable().empty())
                    return perform(node_.on_stillness(
                        local_rank, news.has_still() ? std::optional(news.still()) : std::nullopt));
                log_line("rank " + std::to_string(config_.ranks[local_rank]) + " on " + config_.host +
                         " is not watched, so no hang is noticed (--dp-hang-timeout): " +
                         printable(news.unwatchable()));
            });
    if (config_.settings.wants_nccl_debug()) {
        const std::string since = std::to_string(time(nullptr) - kSkewOfFileServers);
        last_words_.emplace(base_.get(), config_.host,
                            std::vector<std::string>{dpctl_program(), "nccl-warning", "--since", since},
                            [this](const NodeActions::NcclToRead& of, const std::string& words) {
                                perform(node_.on_nccl_warning(of, words));
                            });
        transports_.emplace(
            base_.get(), std::vector<std::string>{dpctl_program(), "nccl-transports", "--since", since},
            [this](wire::NcclTransports found) {
                if (recorder_) recorder_->note(found, config_);
                found.clear_pairs();
                perform(node_.on_answer(wrap(&wire::FromNode::mutable_nccl_transports, std::move(found))));
            });
    }
    if (config_.settings.wants_preflight()) examine_node();
    if (config_.settings.wants_table()) wait_for_tiles();
    look_timer_.after(kLookEvery);
    if (config_.broker)
        start_broker();
    else
        start_relay();
}

// To a relay that is not the broker come only those that want it to be.
void Daemon::serve_relays(int socket) {
    broker_server_.emplace(
        base_.get(), socket, secret_, config_.nodes,
        [this] {
            return BrokerServer::GenerationState{node_.generation(), node_.is_settled()};
        },
        rejected_,
        [this](uint32_t node, const wire::FromNode& message) {
            if (!broker_) return perform(node_.on_supporter(node, message, now()));
            const bool leaves = message.has_leave();
            perform(broker_->on_message(node, message, now()));
            if (leaves) broker_server_->close(node);
        },
        [this](uint32_t node, const std::string& why) {
            if (broker_)
                perform(broker_->on_lost(node, why, now()));
            else
                node_.on_supporter_lost(node);
        });
}

void Daemon::start_broker() {
    broker_.emplace(config_, getuid(), now());
    serve_relays(kFdBroker);
    master_ = {Fd(kFdMaster), config_.master_port};
    coordinator_ = {Fd(kFdCoordinator), config_.coordinator_port};
    if (config_.settings.serves_torch()) serve_torch();
    perform(node_.on_joined(config_.master_addr, now()));
}

// Meanwhile the nodes find each other.
void Daemon::examine_node() {
    std::vector<std::string> command = {dpctl_program(), "examine"};
    if (config_.settings.preflight == Preflight::full) {
        command.emplace_back("--full");
        for (const uint16_t port : binding_order(config_.candidates, read_ephemeral_range()))
            command.insert(command.end(), {"--port", std::to_string(port)});
    }
    if (config_.gpus) command.emplace_back("--gpus");
    if (!config_.cuda_devices.empty()) command.push_back("--cuda-devices=" + config_.cuda_devices);
    if (!config_.temporary.empty()) command.insert(command.end(), {"--temporary", config_.temporary});
    const std::string& address = config_.broker ? config_.master_addr : config_.node_addr;
    if (!address.empty()) command.insert(command.end(), {"--address", address});
    examiner_.emplace([this](wire::FromNode found) {
        if (recorder_ && found.has_examination()) recorder_->note(found.examination());
        if (recorder_ && found.has_measured_link()) recorder_->note(found.measured_link());
        perform(node_.on_answer(std::move(found)));
    });
    examiner_->start(base_.get(), command);
}

void Daemon::serve_torch() {
    torch_server_.emplace(
        base_.get(), master_.socket.get(), config_.world_size, rejected_,
        [this](const wire::WhoOwns& asked) { perform(broker_->on_connection(asked, now())); },
        [this](uint32_t node) { perform(broker_->on_torch_arrival(node, now())); });
}

// For the next generation: other ports, so that nothing of the last one can reach them, unless the user insists
// on one, and an empty store of PyTorch's.
Try<MasterPorts> Daemon::renew_ports() {
    const auto candidates = binding_order(config_.candidates, read_ephemeral_range());
    const bool serves = config_.settings.serves_torch();
    torch_server_.reset();
    if (*config_.settings.port != 0 && !master_.socket)  // an elected broker's
        master_ = DP_TRY(serves ? listen_on_first_free({*config_.settings.port}, "MASTER_PORT")
                                : hold_first_free({*config_.settings.port}, "MASTER_PORT"));
    else if (*config_.settings.port == 0)
        master_ = DP_TRY(serves ? listen_on_first_free(candidates, "MASTER_PORT")
                                : hold_first_free(candidates, "MASTER_PORT"));
    coordinator_ = DP_TRY(hold_first_free(candidates, "a coordinator"));
    if (serves) serve_torch();
    return MasterPorts{master_.port, coordinator_.port};
}

void Daemon::start_relay() {
    broker_link_.emplace(base_.get(), config_.broker_addresses, config_.candidates, secret_,
                         NodeOfGeneration{config_.node_rank, config_.generation}, events_of_link());
}

BrokerLink::Events Daemon::events_of_link() {
    const auto is_present = [this, link = ++link_] { return link == link_; };
    return {
        [this, is_present](const std::string& seen) {
            if (is_present())
                perform(node_.on_joined(config_.node_addr.empty() ? seen : config_.node_addr, now()));
        },
        [this, is_present](const wire::ToNode& message) {
            if (!is_present()) return;
            if (message.has_farewell()) broker_link_->finish();
            on_broker_message(message);
        },
        [this, is_present](const std::string& why, bool by_peer) {
            if (is_present()) perform(node_.on_broker_lost(why, now(), by_peer));
        },
        [this](uint32_t protocol) { node_.on_other_version(protocol); },
    };
}

// Not from a call-back of the link that it ends.
void Daemon::relink() {
    broker_link_.reset();
    if (!next_link_) return;
    BrokerLink::Events events = events_of_link();
    events.on_refused = [this, link = link_] {
        if (link == link_) perform(node_.on_broker_lost("it refuses", now()));
    };
    const auto to = std::exchange(next_link_, std::nullopt);
    broker_link_.emplace(base_.get(), std::vector{to->address()},
                         std::vector{static_cast<uint16_t>(to->port())}, secret_,
                         NodeOfGeneration{config_.node_rank, node_.generation()}, std::move(events));
}

// This node is the broker: what its supporters have said was meant for that.
void Daemon::take_over(const NodeActions& actions) {
    broker_.emplace(config_, getuid(), *actions.elected, now());
    perform(node_.on_joined(config_.master_addr, now()));
    for (const auto& [node, message] : actions.supporters) perform(broker_->on_message(node, message, now()));
}

void Daemon::run() {
    settle();
    while (event_base_loop(base_.get(), EVLOOP_ONCE) == 0 && !event_base_got_break(base_.get()))
        if (leaving_ && (!broker_server_ || !broker_server_->has_nodes())) break;
    rejected_.summary();
    if (broker_ ? broker_->leaves_ranks_behind() : node_.leaves_ranks_behind())
        announce_ranks_left(kFdControl);
    metrics_.finish();
    if (!recorder_) return;
    // Nobody waits for this.
    broker_link_.reset();
    broker_server_.reset();
    recorder_->finish(base_.get());
}

void Daemon::watch_signals() {
    for (int sig : kIgnoredSignals) signal(sig, SIG_IGN);
    for (int sig : kEndSignals) {
        signal_events_.emplace_back(evsignal_new(
            base_.get(), sig,
            [](int, short, void* self) { static_cast<Daemon*>(self)->node_.on_step_signal(); }, this));
        event_add(signal_events_.back().get(), nullptr);
    }
}

// ---- the launcher ----

void Daemon::watch_control() {
    control_event_.reset(event_new(
        base_.get(), kFdControl, EV_READ | EV_PERSIST,
        [](int, short, void* self) { static_cast<Daemon*>(self)->read_control_packets(); }, this));
    event_add(control_event_.get(), nullptr);
    announce_daemon(kFdControl);
}

void Daemon::read_control_packets() {
    for (;;) {
        char packet[kMaxControl];
        ssize_t n = recv(kFdControl, packet, sizeof packet, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) {
            event_del(control_event_.get());
            perform(node_.on_launcher_lost());
            return;
        }
        auto event = read_control(std::string_view(packet, static_cast<size_t>(n)));
        if (!event) continue;
        tasks_.note_launcher(*event);
        if (!config_.settings.restarts_ranks()) note_nccl_file(*event);
        if (event->kind == ControlEvent::Kind::exit) note_ranks();
        perform(node_.on_control(*event, now()));
        // A relay leaves when the kernel has its Leave (send), even if the broker takes nothing.
        if (event->kind == ControlEvent::Kind::end && !broker_) leave_timer_.after(kLeaveTimeout);
    }
}

// Its name has the rank and generation in which the process began; it may survive into others.
void Daemon::note_nccl_file(const ControlEvent& event) {
    if (!last_words_ || event.kind != ControlEvent::Kind::task || event.local_rank >= config_.ranks.size())
        return;
    nccl_files_.resize(config_.tasks);
    nccl_files_[event.local_rank] = nccl_debug_file(
        *config_.settings.nccl_debug, {config_.job_id, config_.step_id, config_.ranks[event.local_rank],
                                       node_.generation(), config_.host, working_directory()});
}

// ---- the record ----

void Daemon::make_recorder() {
    recorder_.emplace(config_, secret_, [this](const std::string& why) {
        tasks_.exempt({});
        log_line(config_.host + " has stopped recording (--dp-record): " + why + "; the step goes on");
    });
}

// The ranks start meanwhile.
void Daemon::start_recording() {
    if (!recorder_ || recorder_->has_started()) return;
    recorder_->start(base_.get());
    tasks_.exempt(recorder_->helpers());
    sample_timer_.after(sample_pause());
}

// A part of the interval that is no longer than kDetailPause: whether single phases are recorded is looked at so often.
Time Daemon::sample_pause() const {
    const Time every = *config_.settings.record_interval;
    return every / ((every + kDetailPause - Time(1)) / kDetailPause);
}

// One that was taken just before, because something ended, will do.
void Daemon::sample_regularly() {
    sample_timer_.after(sample_pause());
    if (!recorder_) return;
    recorder_->add_waiting_environments();
    tasks_.exempt(recorder_->helpers());
    if (!recorder_->wants_sample(sample_pause() / 2)) return;
    const auto ranks = ranks_to_sample();
    if (recorder_->wants_sample(*config_.settings.record_interval - sample_pause() / 2) ||
        recorder_->records_phases(ranks))
        recorder_->sample(config_, ranks, true);
}

std::vector<SampleReader::Rank> Daemon::ranks_to_sample() {
    std::vector<SampleReader::Rank> ranks;
    for (uint32_t local = 0; local < config_.ranks.size(); ++local) {
        const auto connection = node_.connection_of(local);
        ranks.push_back({config_.ranks[local], process_of(local, connection), connection,
                         connection ? usage_.page(*connection) : std::nullopt, node_.step_of(local)});
    }
    return ranks;
}

void Daemon::sample_end() {
    if (!recorder_) return;
    const auto ranks = ranks_to_sample();
    if (recorder_->wants_sample(kSamplePause) || recorder_->wants_scalars(ranks))
        recorder_->sample(config_, ranks, false);
}

void Daemon::note_environment(const ControlEvent& event) {
    const bool is_present =
        event.local_rank < config_.ranks.size() && event.value == static_cast<int>(node_.generation());
    if (recorder_ && is_present) recorder_->note_environment(config_.ranks[event.local_rank], event.text);
}

void Daemon::record_hang(const wire::Hang& hang) {
    std::map<uint32_t, wire::RankStacks::Thread> calls;
    for (const auto& [local, one] : still_)
        if (local < config_.ranks.size()) calls[config_.ranks[local]] = one;
    recorder_->note(hang, calls);
}

// Something ends: what it did until now.
void Daemon::note_ranks() {
    sample_end();
    if (ledger_.is_older_than(kSamplePause, monotonic_ns())) look_at_ledger();
}

void Daemon::look_at_ledger() {
    const int64_t now_ns = monotonic_ns();
    const auto ending = node_.ending();
    std::vector<TaskSeen> tasks(config_.tasks, {.generation = node_.generation()});
    for (uint32_t local = 0; local < std::min<size_t>(config_.ranks.size(), tasks.size()); ++local) {
        const auto connection = node_.connection_of(local);
        const auto page = connection ? usage_.page(*connection) : std::nullopt;
        tasks[local] = {true,
                        ending && !ending->is_last,
                        node_.has_exited(local),
                        still_.contains(local),
                        node_.generation(),
                        connection.value_or(0),
                        page ? phase_times(*page, now_ns) : std::nullopt};
    }
    ledger_.look(tasks, now_ns);
}

wire::NodeMetrics Daemon::metrics() {
    look_at_ledger();
    wire::NodeMetrics metrics;
    for (const double seconds : ledger_.spent()) metrics.add_spent_ms(static_cast<int64_t>(seconds * 1000));
    metrics.set_tiles(static_cast<uint32_t>(known_tiles(config_).size()));
    if (!broker_ || broker_->has_resigned()) return metrics;
    wire::StepStatus& status = *metrics.mutable_status();
    status = broker_->status(true, now());
    status.set_ending(printable(status.ending()));
    if (status.nodes_size() > kMostSilentNamed)
        status.mutable_nodes()->DeleteSubrange(kMostSilentNamed, status.nodes_size() - kMostSilentNamed);
    return metrics;
}

void Daemon::record_ending() {
    const auto ending = recorder_ ? node_.ending() : std::nullopt;
    if (!ending || recorder_->has_ended(node_.generation(), ending->is_last)) return;
    sample_end();
    recorder_->end_generation(node_.generation(), *ending->why, ending->is_last);
}

void Daemon::tell_user(const std::string& line) {
    log_line(line);
    if (recorder_) recorder_->note(line);
}

void Daemon::on_broker_message(const wire::ToNode& message) {
    if (message.has_plan()) note_ranks();  // before it is about others
    perform(node_.on_broker(message, now()));
}

// For the plan's table, once: the tasks that report their tiles were forked with the one that started us.
void Daemon::wait_for_tiles() {
    const Time until = now() + kTilesCome;
    const auto is_missing = [](const std::string& tiles) { return tiles.empty(); };
    while (std::any_of(config_.tiles.begin(), config_.tiles.end(), is_missing) && now() < until) {
        pollfd entry{kFdControl, POLLIN, 0};
        if (poll(&entry, 1, static_cast<int>((until - now()).count())) > 0) read_control_packets();
        if (entry.revents & POLLHUP) return;
    }
}

void Daemon::look_at_ranks() {
    look_timer_.after(kLookEvery);
    look_at_ledger();
    stacks_.reap();
    if (examiner_) examiner_->reap();
    if (last_words_) last_words_->reap();
    if (transports_) transports_->look(nccl_files_, node_.generation(), now());
    now();
    for (uint32_t local = 0; local < config_.ranks.size(); ++local)
        if (const pid_t task = tasks_.of(local)) perform(node_.on_look(local, is_stopped(task)));
    if (watcher_) watch_ranks();
    if (config_.settings.slow_percent.value_or(0) > 0 && now() >= paces_told_ + kPacesEvery) tell_paces();
}

void Daemon::tell_paces() {
    paces_told_ = now();
    wire::NodePaces paces;
    for (uint32_t local = 0; local < config_.ranks.size(); ++local) {
        const auto connection = node_.connection_of(local);
        const auto page = connection ? usage_.page(*connection) : std::nullopt;
        if (!page) continue;
        if (auto pace = paces_.read(config_.ranks[local], *connection, process_of(local, connection), *page,
                                    monotonic_ns()))
            *paces.add_ranks() = std::move(*pace);
    }
    std::optional<Time> every;
    if (paces.ranks_size() > 0) every = paces_.has_slowed_down() ? kGpusSeenOften : kGpusSeenEvery;
    const wire::NodeUsage gpus = gpus_of_paces_.look(now(), every);
    if (!every) return;
    for (auto& pace : *paces.mutable_ranks()) {
        const auto local =
            static_cast<uint32_t>(std::ranges::find(config_.ranks, pace.rank()) - config_.ranks.begin());
        paces_.note_gpu(pace, process_of(local, node_.connection_of(local)), gpus);
    }
    perform(node_.on_answer(wrap(&wire::FromNode::mutable_paces, std::move(paces))));
}

void Daemon::watch_ranks() {
    std::vector<pid_t> tasks;
    for (uint32_t local = 0; local < config_.ranks.size(); ++local) tasks.push_back(tasks_.of(local));
    if (const auto watched = watcher_->watch(tasks); !watched)
        log_line("the ranks on " + config_.host +
                 " are not watched, so no hang is noticed (--dp-hang-timeout): " + watched.error().message);
}

// What is left of the ranks of a generation that ends: processes that they started.
void Daemon::clear_ranks() {
    if (tasks_.kill_offspring(survivors()) > 0)
        clear_timer_.after(kClearEvery);
    else
        perform(node_.on_cleared(now()));
}

void Daemon::signal_ranks(int number) {
    if (!config_.settings.restarts_ranks())
        tasks_.signal(number);
    else if (number == SIGKILL)
        tasks_.kill_offspring(survivors());
    else
        for (uint32_t local = 0; local < config_.tasks; ++local)
            if (!node_.survives(local)) tasks_.signal_group(local, number);
}

std::set<uint32_t> Daemon::survivors() const {
    std::set<uint32_t> out;
    for (uint32_t local = 0; local < config_.tasks; ++local)
        if (node_.survives(local)) out.insert(local);
    return out;
}

// The process that opened the rank's world, or, until there is one, the task that the launcher made.
pid_t Daemon::process_of(uint32_t local, std::optional<ConnectionId> connection) {
    const pid_t opener = connection ? ranks_.pid_of(*connection) : 0;
    return opener > 0 ? opener : tasks_.of(local);
}

wire::NodeUsage Daemon::measure(const std::vector<std::optional<ConnectionId>>& connections) {
    wire::NodeUsage usage = gpus_.look(now());
    usage.set_now_ns(monotonic_ns());
    for (uint32_t local = 0; local < config_.ranks.size(); ++local) {
        auto* rank = usage.add_ranks();
        rank->set_rank(config_.ranks[local]);
        if (local < config_.tiles.size()) rank->set_tiles(config_.tiles[local]);
        usage_.read(*rank, process_of(local, connections[local]), connections[local], usage.now_ns());
    }
    return usage;
}

void Daemon::read_stacks(const NodeActions::StacksToRead& wanted) {
    std::vector<StackReader::Process> processes;
    for (const auto& [local, connection] : wanted.ranks)
        processes.push_back({config_.ranks[local], process_of(local, connection)});
    stacks_.read(wanted.asked, processes);
}

void Daemon::read_nccl(const std::vector<NodeActions::NcclToRead>& wanted) {
    nccl_files_.resize(config_.tasks);
    std::vector<LastWords::File> files;
    for (const auto& of : wanted) files.push_back({of, nccl_files_[of.local_rank]});
    last_words_->read(std::move(files));
}

// ---- actions ----

void Daemon::perform(const NodeActions& actions) {
    record_ending();
    for (const auto& line : actions.log) tell_user(line);
    Try<void> published;
    const auto with_own_pid = [](NodePlan plan) {
        plan.daemon = getpid();
        return plan;
    };
    if (actions.plan) published = publish_plan(kFdPlanFile, kFdReady, with_own_pid(*actions.plan));
    // The others have found the broker: nobody takes this node for it.
    if (actions.plan && successor_port_.socket) serve_relays(successor_port_.socket.get());
    if (actions.no_plan) published = publish_failure(kFdPlanFile, kFdReady, *actions.no_plan);
    if (!published) log_line(published.error().message);
    if (actions.plan) start_recording();
    if (recorder_ && (actions.plan || actions.next_life))
        recorder_->begin_generation(config_, actions.plan ? *actions.plan : *actions.next_life);
    if (recorder_)
        for (const auto& message : actions.news) recorder_->note(message);
    if (recorder_ && actions.hang) record_hang(*actions.hang);
    for (const auto& [connection, message] : actions.to_ranks) ranks_.send(connection, message);
    for (ConnectionId connection : actions.close) ranks_.close(connection);
    for (const auto& [asker, message] : actions.answers) {
        if (metrics_.answer(asker, message)) continue;
        ranks_.send(asker, message);
        if (!message.has_usage()) ranks_.close(asker);
    }
    if (actions.kill_keepers) {
        // A dead keeper no longer leads to its rank's processes.
        for (uint32_t local = 0; local < config_.ranks.size(); ++local) tasks_.signal_group(local, SIGKILL);
        tasks_.kill_all();
    } else if (actions.signal_ranks) {
        signal_ranks(*actions.signal_ranks);
    }
    for (const uint32_t local : actions.kill_ranks) tasks_.signal_group(local, SIGKILL);
    if (keepers_ && actions.no_other_life) keepers_->no_other_life();
    if (keepers_ && actions.next_life)
        keepers_->begin_life(with_own_pid(*actions.next_life), actions.survivors);
    if (actions.stop_clearing) clear_timer_.cancel();
    if (actions.clear_ranks) clear_timer_.after(Time(0));
    if (actions.seek || actions.disconnect) {
        next_link_ = actions.seek;
        ++link_;
        relink_timer_.after(Time(0));
    }
    for (uint32_t node : actions.refused)
        if (broker_server_) broker_server_->close(node);
    for (const auto& asked : actions.lookups)
        perform(node_.on_answer(wrap(&wire::FromNode::mutable_owner, owner_of_client(asked))));
    for (const auto& page : actions.pages)
        usage_.open(page.connection, ranks_.pid_of(page.connection), page.fd);
    if (actions.measure)
        perform(node_.on_answer(wrap(&wire::FromNode::mutable_usage, measure(*actions.measure))));
    for (const auto& wanted : actions.read_stacks) read_stacks(wanted);
    for (const auto& link : actions.measure_links) {
        if (recorder_) recorder_->note(link);
        if (examiner_) examiner_->measure(link);
    }
    if (examiner_ && (actions.plan || actions.no_plan)) examiner_->finish();
    send(actions.to_broker);
    if (!actions.read_nccl.empty()) read_nccl(actions.read_nccl);
    if (actions.elected) take_over(actions);
    settle();
}

wire::FromNode Daemon::with_spent(wire::FromNode leave) {
    if (!recorder_) return leave;
    look_at_ledger();
    for (const double seconds : ledger_.spent())
        leave.mutable_leave()->add_spent_ms(static_cast<int64_t>(seconds * 1000));
    return leave;
}

void Daemon::send(const std::vector<wire::FromNode>& messages) {
    bool leaves = false;
    for (const auto& message : messages) {
        leaves |= message.has_leave();
        if (broker_)
            mail_.to_broker.push_back(message.has_leave() ? with_spent(message) : message);
        else if (broker_link_)
            broker_link_->send(message.has_leave() ? with_spent(message) : message);
    }
    // The step waits for this daemon's end, and an answer would cost it two more turns on busy CPUs.
    if (leaves && broker_link_ && !broker_) {
        broker_link_->flush();
        if (broker_link_->is_idle()) perform(node_.on_broker_lost("it has been told all", now()));
    }
}

void Daemon::perform(const BrokerActions& actions) {
    for (const auto& line : actions.log) tell_user(line);
    for (const auto& [node, message] : actions.sends) {
        if (node == config_.node_rank)
            mail_.to_node.push_back(message.whole());
        else if (broker_server_)
            broker_server_->send(node, message);
    }
    for (const auto& decision : actions.decisions)
        if (torch_server_) torch_server_->decide(decision);
    for (uint32_t node : actions.refused)
        if (broker_server_) broker_server_->close(node);
    if (actions.renew_ports) perform(broker_->on_ports(renew_ports(), now()));
    settle();
}

// Lets the two engines on rank 0's node exchange messages until there are none, then looks at the clock.
void Daemon::settle() {
    if (mail_.delivering) return;
    mail_.delivering = true;
    while (broker_ && (!mail_.to_broker.empty() || !mail_.to_node.empty())) {
        if (!mail_.to_broker.empty()) {
            wire::FromNode message = std::move(mail_.to_broker.front());
            mail_.to_broker.pop_front();
            perform(broker_->on_message(config_.node_rank, message, now()));
        } else {
            wire::ToNode message = std::move(mail_.to_node.front());
            mail_.to_node.pop_front();
            on_broker_message(message);
        }
    }
    mail_.delivering = false;

    const auto next = earlier(node_.next_deadline(), broker_ ? broker_->next_deadline() : std::nullopt);
    if (next)
        timer_.after(*next - now());
    else
        timer_.cancel();
    if (leaving_ || !(broker_ ? broker_->finished() : node_.finished())) return;
    leaving_ = true;
    // Let the nodes close first: closing with unread bytes would discard our last messages.
    if (broker_server_) broker_server_->close_all();
    leave_timer_.after(broker_server_ && broker_server_->has_nodes() ? kLeaveTimeout : Time(0));
}

}  // namespace dp
