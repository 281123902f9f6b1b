// SPDX-License-Identifier: Apache-2.0
//
// The plugin in a task, as the user, between fork and exec: the first local task starts the node's daemon;
// each waits for the plan and takes its place in the world. A waiting task can be cancelled at any time.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/text.hpp"
#include "common/control.hpp"
#include "common/hostfile.hpp"
#include "common/hostlist.hpp"
#include "common/keeper.hpp"
#include "common/ports.hpp"
#include "common/processes.hpp"
#include "common/told_environment.hpp"
#include "environment.hpp"
#include "slurm_versions.hpp"
#include "state.hpp"

namespace dp::plugin {
namespace {

// The daemon knows better than a task why there is no plan, so it gets this much longer to say so.
constexpr std::chrono::seconds kDaemonSpeaksFirst{1};

// slurmctld may be unreachable (a node cut off, munge down): a task that cannot work does not wait for it.
constexpr unsigned kEndStepSeconds = 3;

Try<DaemonConfig> daemon_config(const State& s, std::vector<std::string> tiles, const GetVariable& get) {
    const StepFacts& f = s.facts;
    DaemonConfig c;
    static_cast<NodeOfStep&>(c) = f;
    if (f.heterogeneous) c.node_list.clear();
    c.broker = f.has_rank_zero();
    c.tasks = static_cast<uint32_t>(f.ranks.size());
    // Those of a spare node have no ranks yet.
    std::erase_if(c.ranks, [&](uint32_t rank) { return rank >= f.world_size; });
    if (!c.ranks.empty() && c.ranks.size() < c.tasks)
        return fail(
            "with --dp-spares either all tasks of a node have ranks or none has, but this node has tasks " +
            compress_ranks(f.ranks) + " in a world of " + plural(f.world_size, "rank") +
            "; give --ntasks-per-node and --distribution=block");
    c.tiles = std::move(tiles);
    c.tiles_conf = s.site.tiles_conf;
    c.settings = s.settings;
    if (s.settings.wants_preflight()) {
        c.gpus = has_gpus(get);
        c.cuda_devices = cuda_devices(get).value_or("");
        c.temporary = get("TMPDIR").value_or("");
    }
    c.exporter = s.exporter;
    c.dead_after_seconds = s.site.dead_after_seconds;
    if (c.broker) {
        c.broker_host = f.host;
        c.master_addr = DP_TRY(address_of_node(s));
        c.master_port = s.node.master.port;
        c.coordinator_port = s.node.coordinator.port;
        if (s.settings.restarts_ranks() || s.settings.wants_preflight())
            c.candidates = candidate_ports(f.port_seed);
    } else {
        c.broker_host = f.heterogeneous ? "rank 0's node" : f.rank_zero_host();
        c.broker_addresses = DP_TRY(broker_addresses(s));
        if (s.interface) c.node_addr = s.interface->address;
        c.candidates = candidate_ports(f.port_seed);
    }
    return c;
}

// This task's plan; none without tiles. A failure is the node's, and its first task reports it; if Slurm has
// bound each task to tiles of its own, it is this task's, usually the same in all, and the first reports it.
std::optional<TilePlan> plan_own_tiles(State& s, uint32_t local_rank, const GetVariable& get) {
    if (!s.tiles || s.failure) return std::nullopt;
    const TileFacts facts = facts_of_task(*s.tiles, local_rank, get);
    auto plan = plan_of_task(*s.tiles, facts);
    if (plan) return std::move(*plan);
    if (is_bound_by_slurm(facts)) {
        s.failure_told = !s.tiles->failure_told.is_first();
        if (local_rank > 0 && !s.failure_told)
            slurm_error("slurm-dp: node %s: %s", s.facts.host.c_str(), plan.error().message.c_str());
    }
    s.failure = plan.error().message;
    return std::nullopt;
}

// Whether Slurm has bound each task to tiles of its own.
bool is_known_to_task_alone(const State& s, const TilePlan& plan) {
    return plan.by_task || !s.tiles->shares;
}

// The tiles for the daemon to show, by local rank; "" if that task will report them.
std::vector<std::string> shown_tiles(const State& s, const std::optional<TilePlan>& plan) {
    if (!plan) return {};
    std::vector<std::string> shown(s.facts.ranks.size());
    if (is_known_to_task_alone(s, *plan)) {
        shown.front() = compress_ranks(plan->own);
        return shown;
    }
    const std::vector<Tiles>& shares = s.tiles->shares->shares;
    for (size_t i = 0; i < shares.size(); ++i) shown[i] = compress_ranks(shares[i]);
    return shown;
}

Try<void> start_daemon(State& s, const std::optional<TilePlan>& tiles, const GetVariable& get) {
    const auto config = DP_TRY(daemon_config(s, shown_tiles(s, tiles), get));
    return spawn_daemon(s.node, write_config(config), STDERR_FILENO);
}

// The whole step cannot work: end it now, so that the other nodes need not wait until --dp-timeout.
void end_step(const StepFacts& facts) {
    if (facts.nodes == 1) return;
    signal(SIGTERM, SIG_IGN);  // with which this node's daemon ends its ranks meanwhile
    std::this_thread::sleep_for(kLastLineTravels);
    signal(SIGALRM, [](int) { _exit(1); });
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarm_only, nullptr);
    alarm(kEndStepSeconds);
    kill_step(facts.leader_job_id, facts.step_id, SIGKILL);
}

// Whether another plugin (pyxis) put this task into a container: slurmctld is out of reach there (no munge).
bool in_container(const State& s) {
    return root_mount() != s.root_mount;
}

uint32_t number_of(const GetVariable& get, const char* name, uint32_t otherwise) {
    return parse_number<uint32_t>(get(name).value_or("")).value_or(otherwise);
}

// slurmstepd of 24.05 and later catches these, and a task keeps the handlers until its exec resets them: a
// waiting task would swallow the SIGTERM of scancel and live until KillWait.
void end_on_signals() {
    for (int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
        struct sigaction now {};
        if (sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) signal(number, SIG_DFL);
    }
}

void print_table(const NodePlan& plan, const TaskFacts& facts, bool dry_run) {
    std::fprintf(dry_run ? stdout : stderr,
                 "slurm-dp: MASTER_ADDR=%s MASTER_PORT=%u WORLD_SIZE=%u nodes=%u generation=%u\n%s",
                 plan.master_addr.c_str(), plan.master_port, facts.world_size, facts.nodes, facts.generation,
                 plan.table.c_str());
    std::fflush(dry_run ? stdout : stderr);
}

// One task on its way from fork to exec.
class Task {
 public:
    Task(State& s, spank_t spank) : s_(s), spank_(spank) {
        int local = 0;
        spank_get_item(spank, S_TASK_ID, &local);
        spank_get_item(spank, S_TASK_GLOBAL_ID, &rank_);
        local_ = static_cast<uint32_t>(local);
    }

    void fetch_descriptors();
    void place_in_heterogeneous_step();
    // The node's first task; the others only tell the daemon of their tiles.
    void start_daemon_if_first();
    NodePlan await_plan();
    // With --dp-on-failure=restart: the task becomes the keeper of its rank, and this returns in each of the rank's
    // lives.
    void begin_life(const NodePlan& first);

 private:
    State& s_;
    spank_t spank_;
    uint32_t local_ = 0;
    uint32_t rank_ = 0;
    std::optional<TilePlan> tiles_;
    Fd said_by_daemon_;
    int hostfile_ = -1;
    pid_t reader_ = 0;
    // What take_place has changed: for the daemon to record, and how it was before.
    std::vector<EnvironmentChange> changed_;
    std::vector<EnvironmentChange> unchanged_;
    // Made at the first request; most tasks make none.
    std::optional<EnvironmentList> variables_;
    const GetVariable inherited_ = [this](const char* name) {
        if (!variables_) variables_ = environment_list(spank_);
        return (*variables_)(name);
    };
    const GetVariable before_ = s_.wishes(inherited_);

    bool is_first() const { return local_ == 0; }
    [[noreturn]] void refuse(const std::string& why);
    bool can_prepare(const NodePlan& plan) const;
    void take_place(const NodePlan& plan);
    void leave_place();
    void settle(const NodePlan& plan, bool is_prepared);
    void change_variables(const TaskFacts& facts, const NodePlan& plan, std::vector<std::string>& warnings);
};

// One line per node, not per task, and none if another node reports it ("") and ends the step. Exits, because
// Slurm ignores an error code with `optional` in plugstack.conf: the program would run outside of any world.
void Task::refuse(const std::string& why) {
    if (is_first() && !why.empty()) {
        if (!s_.failure_told) slurm_error("slurm-dp: node %s: %s", s_.facts.host.c_str(), why.c_str());
        if (!in_container(s_)) {
            announce_daemon(said_by_daemon_.get());  // so slurmstepd leaves that to this task
            end_step(s_.facts);
        }
    }
    _exit(1);
}

void Task::fetch_descriptors() {
    if (!s_.failure) {
        auto fetched = s_.handover.lend(s_.node);
        if (fetched && is_first()) fetched = s_.handover.hand_over(s_.node);
        if (!fetched) s_.failure = fetched.error().message;
    }
    // It also holds the launcher's end, which only slurmstepd may hold.
    s_.handover = FdHandover();
}

// In the environment Slurm counts over all components, in SPANK within one.
void Task::place_in_heterogeneous_step() {
    if (!s_.facts.heterogeneous) return;
    const uint32_t in_component = rank_;
    rank_ = number_of(inherited_, "SLURM_PROCID", rank_);
    for (uint32_t& rank : s_.facts.ranks) rank += rank_ - in_component;
    s_.facts.node_rank = number_of(inherited_, "SLURM_NODEID", s_.facts.node_rank);
    // Bound for the rank 0 of a component only.
    if (!s_.facts.has_rank_zero())
        drop_broker_ports(s_.node);
    else if (s_.broker_failure && !s_.failure)
        s_.failure = s_.broker_failure;
    s_.facts.leader_job_id = number_of(inherited_, "SLURM_JOB_ID", s_.facts.job_id);
}

void Task::start_daemon_if_first() {
    tiles_ = plan_own_tiles(s_, local_, before_);
    if (!s_.failure && is_first())
        if (auto started = start_daemon(s_, tiles_, inherited_); !started)
            s_.failure = started.error().message;
    if (is_first()) said_by_daemon_ = std::move(s_.node.control_daemon);
    drop_daemon_ends(s_.node);
    if (tiles_ && !is_first() && is_known_to_task_alone(s_, *tiles_))
        send_control(s_.node.control_launcher.get(),
                     {ControlEvent::Kind::tiles, local_, 0, compress_ranks(tiles_->own)});
    // Only slurmstepd may hold this end: the daemon takes its closing for slurmstepd's death.
    s_.node.control_launcher.reset();
}

NodePlan Task::await_plan() {
    if (s_.failure) refuse(*s_.failure);
    // The daemon waits this long for the broker, and the broker, which may start as late, for the others.
    auto plan = wait_for_plan(s_.node.plan_file.get(), s_.node.ready_read.get(),
                              (s_.facts.nodes > 1 ? 2 : 1) * s_.settings.timeout() +
                                  s_.settings.longest_preflight() + kDaemonSpeaksFirst);
    if (!plan) refuse(plan.error().message);
    return std::move(*plan);
}

void Task::begin_life(const NodePlan& first) {
    if (!s_.settings.restarts_ranks()) {
        take_place(first);
        return settle(first, false);
    }
    const bool is_prepared = can_prepare(first);
    if (is_prepared) take_place(first);
    s_.node.plan_file.reset();
    s_.node.ready_read.reset();
    auto plan = keep(s_.node.socket_name, local_, first);
    if (!plan) {
        // The node's first task speaks for the others, but this may be this one's alone.
        if (!is_first())
            slurm_error("slurm-dp: node %s: rank %u: %s", s_.facts.host.c_str(), rank_,
                        plan.error().message.c_str());
        refuse(plan.error().message);
    }
    const bool is_first = plan->generation == first.generation;
    if (is_prepared && !is_first) leave_place();
    if (!is_prepared || !is_first) take_place(*plan);
    settle(*plan, is_prepared && is_first);
}

// Whether the keeper takes its rank's place before it forks: each page of memory that only the rank writes to, the kernel copies first.
// Not where the task ends there, or is bound to CPUs that are the rank's alone.
bool Task::can_prepare(const NodePlan& plan) const {
    return plan.place && local_ < plan.place->ranks.size() && !*s_.settings.dry_run && !tiles_;
}

// For the place of another generation.
void Task::leave_place() {
    change_environment(spank_, environment_list(spank_), unchanged_);
    variables_.reset();
    if (hostfile_ >= 0) close(std::exchange(hostfile_, -1));
}

// What only the rank's own process can do.
void Task::settle(const NodePlan& plan, bool is_prepared) {
    let_read_this_process(reader_);
    const auto hostfile = std::ranges::find(changed_, kHostfileVariable, &EnvironmentChange::name);
    if (is_prepared && hostfile != changed_.end()) {
        hostfile->value = path_of_hostfile(hostfile_);
        if (!overwrite(raw_environment(spank_), *hostfile))
            spank_setenv(spank_, hostfile->name.c_str(), hostfile->value->c_str(), 1);
    }
    if (s_.settings.wants_record()) tell_environment(s_.node.socket_name, local_, plan.generation, changed_);
}

void Task::change_variables(const TaskFacts& facts, const NodePlan& plan,
                            std::vector<std::string>& warnings) {
    TaskEnvironment environment = task_environment(facts, plan, before_);
    if (s_.settings.tasks_tell()) changed_ = environment.changes;
    for (const std::string& name : environment.kept)
        if (auto wanted = before_(name.c_str()); wanted != inherited_(name.c_str()))
            environment.changes.push_back({name, std::move(wanted)});
    if (s_.settings.restarts_ranks()) {
        unchanged_.clear();
        for (const auto& change : environment.changes)
            unchanged_.push_back({change.name, inherited_(change.name.c_str())});
    }
    change_environment(spank_, environment_list(spank_), environment.changes);
    remove_slots(spank_);
    if (rank_ == 0) warnings.insert(warnings.end(), environment.warnings.begin(), environment.warnings.end());
}

void Task::take_place(const NodePlan& plan) {
    if (plan.place) rank_ = plan.place->ranks[local_];
    if (rank_ >= s_.facts.world_size && !plan.place)
        _exit(0);  // a spare's, which --dp-dry-run does not run either
    TaskFacts facts = task_facts(s_, rank_, local_);
    facts.take(plan);
    reader_ = reader_of_ranks(plan.daemon);
    const bool is_first_life = plan.generation == s_.facts.generation;
    hostfile_ = make_hostfile(hostfile_of(plan.hosts, plan.ranks_per_host));
    facts.hostfile = path_of_hostfile(hostfile_);
    std::vector<std::string> warnings;
    if (s_.settings.wants_nccl_debug()) {
        facts.nccl_debug_file = usable_nccl_debug_file(
            *s_.settings.nccl_debug,
            {s_.facts.job_id, s_.facts.step_id, rank_, facts.generation, s_.facts.host, working_directory()},
            warnings);
        if (!is_first()) warnings.clear();  // the folder may be missing on this node alone
    }
    if (tiles_) {
        facts.tiles = tiles_->variables;
        if (s_.tiles->inventory.says_where() && !s_.own_binding)
            if (auto warning = bind_near_tiles(s_.facts, *s_.tiles, *tiles_, local_))
                warnings.push_back(*warning);
    }
    facts.cpus = cpus_of_task(s_.facts.cpus_per_task, static_cast<uint32_t>(allowed_cpus().size()),
                              s_.facts.cpus, facts.local_world_size);
    if (rank_ == 0)
        if (auto warning = ephemeral_warning(s_.facts.port_seed.reserved, read_ephemeral_range());
            !warning.empty())
            warnings.push_back(std::move(warning));
    change_variables(facts, plan, warnings);
    if (!is_first_life) return;  // what follows has been said
    for (const auto& warning : warnings) std::fprintf(stderr, "slurm-dp: %s\n", warning.c_str());
    const bool dry_run = *s_.settings.dry_run;
    if (rank_ == 0) {
        if (s_.settings.tensor || s_.settings.pipeline)
            std::fprintf(stderr, "%s\n", model_parallel_line(facts.world_size, facts.sizes).c_str());
        if (!plan.table.empty()) print_table(plan, facts, dry_run);
    }
    // Nothing is run: the task ends here with success.
    if (dry_run) _exit(0);
}

}  // namespace

TaskFacts task_facts(const State& s, uint32_t rank, uint32_t local_rank) {
    TaskFacts facts;
    facts.rank = rank;
    facts.world_size = facts.first_world_size = s.facts.world_size;
    facts.local_rank = local_rank;
    facts.local_world_size = static_cast<uint32_t>(s.facts.ranks.size());
    facts.node_rank = s.facts.node_rank;
    facts.nodes = s.facts.nodes - nodes_in_reserve(s.settings);
    facts.generation = s.facts.generation;
    facts.settings = s.settings;
    facts.sizes = s.settings.sizes(s.facts.world_size);
    if (s.interface) facts.interface = s.interface->interface;
    facts.socket = s.node.socket_name;
    return facts;
}

void task_init(spank_t spank) {
    State& s = state();
    if (!s.active) {
        // The launcher has left this step alone.
        for (const char* name : kLauncherVariables) spank_unsetenv(spank, name);
        return;
    }
    end_on_signals();
    if (s.refused) _exit(1);
    // Never deleted: the program replaces it soon, and each page that a rank writes to to free memory of its keeper's would be copied
    // first.
    Task& task = *new Task(s, spank);
    task.fetch_descriptors();
    task.place_in_heterogeneous_step();
    task.start_daemon_if_first();
    task.begin_life(task.await_plan());
}

}  // namespace dp::plugin
