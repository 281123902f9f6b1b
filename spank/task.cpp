// SPDX-License-Identifier: Apache-2.0
//
// The plugin in a task, as the user, between fork and exec: the first local task starts the node's
// daemon; every task waits for the plan and takes its place in the world. A waiting task can be cancelled
// at any time.
extern "C" {
#include <slurm/slurm.h>
}

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/text.hpp"
#include "binding.hpp"
#include "common/board.hpp"
#include "common/control.hpp"
#include "common/daemon_config.hpp"
#include "common/hostlist.hpp"
#include "common/task_environment.hpp"
#include "environment.hpp"
#include "network.hpp"
#include "slurm_versions.hpp"
#include "state.hpp"

namespace dp::plugin {
namespace {

// The daemon knows better than a task why there is no plan, so it gets this much longer to say so.
constexpr std::chrono::seconds kDaemonSpeaksFirst{1};

// slurmctld may be unreachable (a node cut off, munge down): a task that cannot work does not wait for it.
constexpr unsigned kEndStepSeconds = 3;

Try<DaemonConfig> daemon_config(const State& s, std::vector<std::string> tiles) {
    const StepFacts& f = s.facts;
    DaemonConfig c;
    c.job_id = f.job_id;
    c.step_id = f.step_id;
    c.broker = f.has_rank_zero();
    c.generation = f.restart;
    c.world_size = f.world_size;
    c.nodes = f.nodes;
    c.node_rank = f.node_rank;
    c.host = f.host;
    c.ranks = f.ranks;
    c.tiles = std::move(tiles);
    c.tiles_conf = s.site.tiles_conf;
    if (!f.heterogeneous) c.node_list = f.node_list;
    c.settings = s.settings;
    c.dead_after_seconds = s.site.dead_after_seconds;
    c.secret = f.secret;
    if (c.broker) {
        auto address = address_of_node(s);
        if (!address) return tl::make_unexpected(address.error());
        c.broker_host = f.host;
        c.master_addr = *address;
        c.master_port = s.node.master.port;
        c.coordinator_port = s.node.coordinator.port;
    } else {
        auto addresses = broker_addresses(s);
        if (!addresses) return tl::make_unexpected(addresses.error());
        c.broker_host = f.heterogeneous ? "rank 0's node" : f.rank_zero_host();
        c.broker_addresses = *addresses;
        if (s.interface) c.node_addr = s.interface->address;
        c.candidates = candidate_ports(f.port_seed);
    }
    return c;
}

// This task's plan, in `s`; null without tiles. A failure is the node's, reported by its first task. If Slurm
// has bound each task to tiles of its own, it is this task's, reported by the first that has one: usually all
// have the same.
const TilePlan* plan_own_tiles(State& s, uint32_t local_rank, const GetVariable& get) {
    if (!s.tiles || s.failure) return nullptr;
    auto found = find_plan(s, local_rank, get);
    if (!found) {
        s.failure = found.error().message;
        return nullptr;
    }
    if (*found) return *found;
    TileFacts facts = tile_facts(s, local_rank, get);
    facts.open_error = open_error;
    auto plan = plan_of_task(s, facts);
    if (plan) {
        s.tiles->own = std::move(*plan);
        return &s.tiles->own;
    }
    if (is_bound_by_slurm(facts)) {
        s.failure_told = !s.tiles->failure_told.is_first();
        if (local_rank > 0 && !s.failure_told)
            slurm_error("slurm-dp: node %s: %s", s.facts.host.c_str(), plan.error().message.c_str());
    }
    s.failure = plan.error().message;
    return nullptr;
}

// Whether Slurm has bound each task to tiles of its own.
bool is_known_to_task_alone(const State& s, const TilePlan& plan) {
    return plan.by_task || !s.tiles->shares;
}

// The tiles for the daemon to show, by local rank; "" if that task will report them.
std::vector<std::string> shown_tiles(const State& s, const TilePlan* plan) {
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

Try<void> start_daemon(State& s, const TilePlan* tiles) {
    auto config = daemon_config(s, shown_tiles(s, tiles));
    if (!config) return tl::make_unexpected(config.error());
    return spawn_daemon(s.node, write_config(*config), STDERR_FILENO);
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

// Whether another plugin (pyxis) has put this task into a container: slurmctld cannot be reached from there,
// because munge's socket is outside.
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

}  // namespace

TaskFacts task_facts(const State& s, uint32_t rank, uint32_t local_rank) {
    TaskFacts facts;
    facts.rank = rank;
    facts.world_size = s.facts.world_size;
    facts.local_rank = local_rank;
    facts.local_world_size = static_cast<uint32_t>(s.facts.ranks.size());
    facts.node_rank = s.facts.node_rank;
    facts.nodes = s.facts.nodes;
    facts.generation = s.facts.restart;
    facts.settings = s.settings;
    facts.sizes = s.settings.sizes(s.facts.world_size);
    if (s.interface) facts.interface = s.interface->interface;
    facts.run = std::to_string(s.facts.leader_job_id) + "." + std::to_string(s.facts.step_id);
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
    int local = 0;
    uint32_t rank = 0;
    spank_get_item(spank, S_TASK_ID, &local);
    spank_get_item(spank, S_TASK_GLOBAL_ID, &rank);
    Fd said_by_daemon;
    // One line a node, not one a task, and none where another node says it ("") and ends the step. The task
    // ends here and not by an error code, which Slurm ignores where plugstack.conf says `optional`: the
    // program would run outside of every world.
    auto refuse = [&](const std::string& why) {
        if (local == 0 && !why.empty()) {
            if (!s.failure_told) slurm_error("slurm-dp: node %s: %s", s.facts.host.c_str(), why.c_str());
            if (!in_container(s)) {
                announce_daemon(said_by_daemon.get());  // so slurmstepd leaves that to this task
                end_step(s.facts);
            }
        }
        _exit(1);
    };
    if (!s.failure) {
        auto fetched = s.shelf.lend(s.node);
        if (fetched && local == 0) fetched = s.shelf.hand_over(s.node);
        if (!fetched) s.failure = fetched.error().message;
    }
    // It also holds the launcher's end, which only slurmstepd may hold.
    s.shelf = Shelf();
    // Made at the first request; most tasks make none.
    std::optional<EnvironmentList> variables;
    const GetVariable inherited = [&](const char* name) {
        if (!variables) variables = environment_list(spank);
        return (*variables)(name);
    };
    if (s.facts.heterogeneous) {
        // In the environment, ranks count over all components.
        const uint32_t in_component = rank;
        rank = number_of(inherited, "SLURM_PROCID", rank);
        s.facts.place_component(rank - in_component, number_of(inherited, "SLURM_NODEID", s.facts.node_rank));
        // Bound for the rank 0 of a component only.
        if (!s.facts.has_rank_zero())
            drop_broker_ports(s.node);
        else if (s.broker_failure && !s.failure)
            s.failure = s.broker_failure;
        s.facts.leader_job_id = number_of(inherited, "SLURM_JOB_ID", s.facts.job_id);
    }
    const GetVariable before = [&](const char* name) { return s.environment.get(name, inherited); };
    const TilePlan* const tiles = plan_own_tiles(s, static_cast<uint32_t>(local), before);
    if (!s.failure && local == 0) {
        if (auto started = start_daemon(s, tiles); !started) s.failure = started.error().message;
    }
    if (local == 0) said_by_daemon = std::move(s.node.control_daemon);
    drop_daemon_ends(s.node);
    if (tiles && local > 0 && is_known_to_task_alone(s, *tiles))
        send_control(s.node.control_launcher.get(), {ControlEvent::Kind::tiles, static_cast<uint32_t>(local),
                                                     0, compress_ranks(tiles->own)});
    // Only slurmstepd may hold this end: the daemon takes its closing for slurmstepd's death.
    s.node.control_launcher.reset();
    if (s.failure) refuse(*s.failure);
    auto plan =
        wait_for_plan(s.node.board.get(), s.node.ready_read.get(), s.settings.timeout() + kDaemonSpeaksFirst);
    if (!plan) refuse(plan.error().message);

    TaskFacts facts = task_facts(s, rank, static_cast<uint32_t>(local));
    std::vector<std::string> warnings;
    if (tiles) {
        facts.tiles = tiles->variables;
        if (s.tiles->says_where && !s.own_binding)
            if (auto warning = bind_near_tiles(s, *tiles, static_cast<uint32_t>(local)))
                warnings.push_back(*warning);
    }
    facts.cpus = cpus_of_task(s.facts.cpus_per_task, static_cast<uint32_t>(allowed_cpus().size()),
                              s.facts.cpus, facts.local_world_size);
    if (const auto left = s.environment.fill(raw_environment(spank), facts, *plan)) {
        // One or two changes at most, for which a list is not worthwhile.
        change_environment(spank, EnvironmentList(nullptr), *left);
    } else {
        const TaskEnvironment environment = task_environment(facts, *plan, before);
        change_environment(spank, environment_list(spank),
                           s.environment.left_of(environment.changes, inherited));
        if (rank == 0)
            warnings.insert(warnings.end(), environment.warnings.begin(), environment.warnings.end());
    }
    const bool dry_run = *s.settings.dry_run;
    for (const auto& warning : warnings) std::fprintf(stderr, "slurm-dp: %s\n", warning.c_str());
    if (rank == 0) {
        if (s.settings.tensor || s.settings.pipeline)
            std::fprintf(stderr, "%s\n", model_parallel_line(facts.world_size, facts.sizes).c_str());
        if (!plan->table.empty()) print_table(*plan, facts, dry_run);
    }
    // Nothing is run: the task ends here with success.
    if (dry_run) _exit(0);
}

}  // namespace dp::plugin
