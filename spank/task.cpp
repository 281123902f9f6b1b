// SPDX-License-Identifier: Apache-2.0
//
// The plugin in a task, as the user, between fork and exec: the first local task starts the node's daemon,
// every task waits for the plan and takes its place in the world. A task that waits here can be cancelled at
// any time.
extern "C" {
#include <slurm/slurm.h>
}

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "common/addresses.hpp"
#include "common/board.hpp"
#include "common/daemon_config.hpp"
#include "common/task_environment.hpp"
#include "common/text.hpp"
#include "state.hpp"

namespace dp::plugin {
namespace {

// The daemon knows better than a task why there is no plan; it gets this much longer to say it.
constexpr std::chrono::seconds kDaemonSpeaksFirst{5};

// A NodeName need not be a host name: slurm.conf may give its NodeAddr.
Try<std::vector<std::string>> resolve_through_slurm(const std::string& node, const Failure& before) {
    node_info_msg_t* info = nullptr;
    if (slurm_load_node_single(&info, const_cast<char*>(node.c_str()), 0) != SLURM_SUCCESS)
        return tl::make_unexpected(before);
    std::string address;
    if (info->record_count > 0 && info->node_array[0].node_addr) address = info->node_array[0].node_addr;
    slurm_free_node_info_msg(info);
    if (address.empty() || address == node) return tl::make_unexpected(before);
    return resolve(address);
}

Try<DaemonConfig> daemon_config(const State& s) {
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
    c.node_list = f.node_list;
    c.timeout_seconds = s.settings.timeout_seconds.value_or(kDefaultTimeoutSeconds);
    c.want_table = s.settings.verbose.value_or(false) || s.settings.dry_run.value_or(false);
    c.report_failures = s.settings.on_failure == FailureAction::report;
    c.torch_store = s.settings.store == StoreKind::torch;
    c.secret = f.secret;
    c.broker_host = c.broker ? f.host : f.rank_zero_host;
    if (c.broker) {
        auto address = own_address(f.host, f.nodes);
        if (!address) return tl::make_unexpected(address.error());
        c.master_addr = *address;
        c.master_port = s.node.master.port;
        c.coordinator_port = s.node.coordinator.port;
    } else {
        if (f.rank_zero_host.empty())
            return fail("the host of rank 0 is unknown on " + f.host +
                        ": is slurm-dp installed where srun runs?");
        auto addresses = resolve(f.rank_zero_host);
        if (!addresses) addresses = resolve_through_slurm(f.rank_zero_host, addresses.error());
        if (!addresses) return tl::make_unexpected(addresses.error());
        c.broker_addresses = *addresses;
        c.candidates = candidate_ports(f.port_seed());
    }
    return c;
}

Try<void> start_daemon(State& s) {
    auto config = daemon_config(s);
    if (!config) return tl::make_unexpected(config.error());
    return spawn_daemon(s.node, write_config(*config), STDERR_FILENO);
}

// The whole step cannot work: end it now instead of letting the other nodes wait for this one until
// --dp-timeout.
void end_step(const StepFacts& facts) {
    if (facts.nodes > 1) slurm_kill_job_step(facts.job_id, facts.step_id, SIGKILL);
}

std::optional<std::string> task_environment_value(spank_t spank, const char* name) {
    char value[1024];
    if (spank_getenv(spank, name, value, sizeof value) != ESPANK_SUCCESS) return std::nullopt;
    return std::string(value);
}

void print_table(const NodePlan& plan, const TaskFacts& facts, bool dry_run) {
    std::fprintf(dry_run ? stdout : stderr,
                 "slurm-dp: MASTER_ADDR=%s MASTER_PORT=%u WORLD_SIZE=%u nodes=%u generation=%u\n%s",
                 plan.master_addr.c_str(), plan.master_port, facts.world_size, facts.nodes, facts.generation,
                 plan.table.c_str());
    std::fflush(dry_run ? stdout : stderr);
}

}  // namespace

void task_init(spank_t spank) {
    State& s = state();
    if (!s.active) {
        // A step that the launcher left alone.
        for (const char* name : kLauncherVariables) spank_unsetenv(spank, name);
        return;
    }
    if (s.refused) _exit(1);
    int local = 0;
    uint32_t rank = 0;
    spank_get_item(spank, S_TASK_ID, &local);
    spank_get_item(spank, S_TASK_GLOBAL_ID, &rank);
    // One line a node, not one a task. The task ends here and not by an error code, which Slurm ignores where
    // plugstack.conf says `optional`: the program would run outside of every world.
    auto refuse = [&](const std::string& why, bool others_would_wait = false) {
        if (local == 0) {
            slurm_error("slurm-dp: node %s: %s", s.facts.host.c_str(), why.c_str());
            if (others_would_wait) end_step(s.facts);
        }
        _exit(1);
    };
    // In a heterogeneous step this counts the tasks of all components, the plugin's own facts those of one.
    const auto all =
        parse_number<uint32_t>(task_environment_value(spank, "SLURM_STEP_NUM_TASKS").value_or(""));
    if (!s.failure && all && *all != s.facts.world_size)
        s.failure =
            "heterogeneous steps (srun A : B) cannot be one world yet; start each part with an srun of its "
            "own";
    if (!s.failure && local == 0) {
        if (auto started = start_daemon(s); !started) s.failure = started.error().message;
    }
    drop_daemon_ends(s.node);
    // Only slurmstepd may hold this end: the daemon takes its closing for slurmstepd's death.
    s.node.control_launcher.reset();
    if (s.failure) refuse(*s.failure, true);
    const std::chrono::seconds timeout(s.settings.timeout_seconds.value_or(kDefaultTimeoutSeconds));
    auto plan = wait_for_plan(s.node.board.get(), s.node.ready_read.get(), timeout + kDaemonSpeaksFirst);
    if (!plan) refuse(plan.error().message);

    TaskFacts facts;
    facts.rank = rank;
    facts.world_size = s.facts.world_size;
    facts.local_rank = static_cast<uint32_t>(local);
    facts.local_world_size = static_cast<uint32_t>(s.facts.ranks.size());
    facts.node_rank = s.facts.node_rank;
    facts.nodes = s.facts.nodes;
    facts.generation = s.facts.restart;
    facts.timeout_seconds = static_cast<uint32_t>(timeout.count());
    facts.socket = s.node.socket_name;
    const TaskEnvironment environment =
        task_environment(facts, *plan, [&](const char* name) { return task_environment_value(spank, name); });
    for (const auto& change : environment.changes) {
        if (change.value)
            spank_setenv(spank, change.name.c_str(), change.value->c_str(), 1);
        else
            spank_unsetenv(spank, change.name.c_str());
    }
    const bool dry_run = s.settings.dry_run.value_or(false);
    if (rank == 0) {
        for (const auto& warning : environment.warnings)
            std::fprintf(stderr, "slurm-dp: %s\n", warning.c_str());
        if (!plan->table.empty()) print_table(*plan, facts, dry_run);
    }
    // Nothing is run: the task ends here, as if its program had ended well.
    if (dry_run) _exit(0);
}

}  // namespace dp::plugin
