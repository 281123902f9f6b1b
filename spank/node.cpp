// SPDX-License-Identifier: Apache-2.0
//
// The plugin in slurmstepd: binds the node's sockets before its tasks are forked, tells the daemon what
// becomes of the tasks, and sees the daemon gone before the last task_exit returns (a process that is still
// there when the step's container is emptied costs the step a second).
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "base/text.hpp"
#include "binding.hpp"
#include "common/control.hpp"
#include "common/daemon_config.hpp"
#include "common/host_name.hpp"
#include "common/hostlist.hpp"
#include "common/task_environment.hpp"
#include "environment.hpp"
#include "slurm_versions.hpp"
#include "state.hpp"

namespace dp::plugin {
namespace {

// Batch, interactive and extern steps have numbers from here on (slurm.h: SLURM_MAX_NORMAL_STEP_ID).
constexpr uint32_t kFirstSpecialStep = 0xfffffff0;

std::optional<std::string> host_at(const std::string& node_list, size_t place) {
    const auto hosts = Hostlist::read(node_list);
    return hosts ? hosts->at(place) : std::nullopt;
}

std::string node_name(const StepFacts& facts, const GetVariable& get) {
    // srun sorts the nodes of a heterogeneous step, so a node's number does not lead to it.
    if (!facts.heterogeneous)
        if (auto host = host_at(facts.node_list, facts.node_rank)) return *host;
    if (auto name = get("SLURMD_NODENAME"); name && !name->empty()) return *name;
    return host_name();
}

Try<StepFacts> gather(spank_t spank, const GetVariable& get) {
    StepFacts f;
    uint32_t local_tasks = 0;
    if (spank_get_item(spank, S_JOB_UID, &f.user) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_ID, &f.job_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &f.step_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_NNODES, &f.nodes) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_NODEID, &f.node_rank) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &f.world_size) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &local_tasks) != ESPANK_SUCCESS)
        return fail("slurmstepd does not tell the plugin its step");
    for (uint32_t local = 0; local < local_tasks; ++local) {
        uint32_t rank = 0;
        if (spank_get_item(spank, S_JOB_LOCAL_TO_GLOBAL_ID, local, &rank) != ESPANK_SUCCESS)
            return fail("slurmstepd does not tell the plugin the rank of local task " +
                        std::to_string(local));
        f.ranks.push_back(rank);
    }
    f.leader_job_id = f.job_id;
    uint16_t cpus = 0;
    if (spank_get_item(spank, S_JOB_NCPUS, &cpus) == ESPANK_SUCCESS) f.cpus = cpus;
    auto text = [&](const char* name) { return get(name).value_or(""); };
    auto number = [&](const char* name) { return parse_number<uint32_t>(text(name)); };
    f.cpus_per_task = number("SLURM_CPUS_PER_TASK").value_or(0);
    // S_SLURM_RESTART_COUNT is always 0 in a step: slurmstepd never fills it in (slurmstepd_job.c).
    f.restart = number("SLURM_RESTART_COUNT").value_or(0);
    f.node_list = text("SLURM_STEP_NODELIST");
    f.secret = text(kSecretVariable);
    const uint32_t all_tasks = number("SLURM_STEP_NUM_TASKS").value_or(f.world_size);
    f.heterogeneous = all_tasks != f.world_size;
    f.host = node_name(f, get);
    if (f.heterogeneous) {
        f.world_size = all_tasks;
        f.nodes = number("SLURM_STEP_NUM_NODES").value_or(f.nodes);
        // Job id and reserved ports may differ between the components, but they share the secret; the seed
        // takes 32 of its 256 bits.
        std::from_chars(f.secret.data(), f.secret.data() + std::min<size_t>(8, f.secret.size()),
                        f.port_seed.job_id, 16);
        return f;
    }
    if (std::string order = text(kNodeOrderVariable); !order.empty()) {
        const auto hosts = expand_hostlist(order).value_or(std::vector<std::string>{});
        const auto here = std::find(hosts.begin(), hosts.end(), f.host);
        if (here == hosts.end()) return fail("srun's list of the step's nodes is without this one");
        f.node_rank = static_cast<uint32_t>(here - hosts.begin());
        f.node_list = std::move(order);
    }
    f.port_seed = {f.job_id, f.step_id, f.restart, text("SLURM_STEP_RESV_PORTS")};
    return f;
}

Try<void> prepare(State& s) {
    const StepFacts& f = s.facts;
    if (s.settings.interface) {
        auto chosen = DP_TRY(choose_interface(*s.settings.interface, all_interfaces(), f.host, f.nodes));
        s.interface = chosen;
    }
    PortWishes ports;
    if (f.has_rank_zero()) {
        ports.candidates = candidate_ports(f.port_seed);
        ports.ephemeral = read_ephemeral_range();
        ports.master = *s.settings.port;
        ports.serve_master = s.settings.serves_torch();
    }
    auto node = prepare_node(s.site.daemon, f.name(), f.user, ports);
    if (!node && f.heterogeneous && f.has_rank_zero()) {
        // It is rank 0 of its component, and perhaps only of that.
        s.broker_failure = node.error().message;
        node = prepare_node(s.site.daemon, f.name(), f.user, {});
    }
    if (!node) return tl::unexpected(node.error());
    s.node = std::move(*node);
    return {};
}

// What a call-back needs of the kept descriptors, as long as it runs.
class Loan {
 public:
    explicit Loan(State& s) : s_(s) {
        if (auto lent = s.handover.lend(s.node); !lent)
            slurm_error("slurm-dp: step %s: %s", s.facts.name().c_str(), lent.error().message.c_str());
    }
    ~Loan() { s_.handover.take_back(s_.node); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

 private:
    State& s_;
};

// Prepares what a node needs before its tasks are forked; on failure, keeps the reason for task_init.
void take_up_step(spank_t spank, State& s) {
    const EnvironmentList variables = environment_list(spank);
    const GetVariable get = std::cref(variables);
    const std::string step = get(kStepVariable).value_or("");
    s.refused = step == kRefusedStep;
    if (s.refused) return s.handover.abandon();
    auto settings = read_settings(step);
    if (settings) s.settings = with_defaults(*settings);
    s.own_options = step.find(kOwnOptions) != std::string::npos;
    s.own_binding = step.find(kOwnBinding) != std::string::npos;
    auto facts = settings.and_then([&](const Settings&) { return gather(spank, get); });
    if (!facts) {
        s.failure = facts.error().message;
        return s.handover.abandon();
    }
    s.facts = std::move(*facts);
    if (s.facts.heterogeneous) {
        // srun knows only one component; it has judged every other step before it launched it.
        const StepVerdict verdict =
            judge_step(s.settings, s.own_options ? s.settings : Settings{}, s.facts.world_size);
        if (verdict.decision == StepVerdict::refuse) s.failure = verdict.why;
        if (verdict.decision == StepVerdict::leave_alone) s.active = false;
        if (verdict.decision != StepVerdict::apply) return s.handover.abandon();
    }
    if (s.settings.tiles) {
        auto tiles = gather_tiles(s.facts, s.site.tiles_conf, get);
        if (!tiles) {
            s.failure = tiles.error().message;
            return s.handover.abandon();
        }
        s.tiles = std::move(*tiles);
        // If it fails, each task says why.
        TileFacts any = tile_facts(s.facts, s.settings, *s.tiles, 0, get);
        if (auto shares = share_node(any)) {
            s.tiles->near = near_of_shares(s.tiles->inventory, shares->shares);
            s.tiles->shares = std::move(*shares);
            plan_tasks(*s.tiles, std::move(any));
        }
    }
    for (size_t i = 0; i < kNamesOfWorld.size(); ++i) s.world_of_user[i] = get(kNamesOfWorld[i]);
    auto prepared = prepare(s).and_then([&] { return s.handover.put(s.node); });
    if (prepared) return;
    s.failure = prepared.error().message;
    s.node = NodeSetup();
    s.handover.abandon();
}

// Ends the step on all nodes, through slurmctld.
void end_step_on_all_nodes(const StepFacts& f) {
    std::this_thread::sleep_for(kLastLineTravels);
    kill_step(f.job_id, f.step_id, SIGKILL);
}

// None of the node's tasks got as far as starting a daemon, because another plugin failed before (a container
// could not be made), or ours failed inside a container. Its own message reaches the user; the other nodes
// need not wait for this one until --dp-timeout.
void end_step_without_daemon(const State& s) {
    const StepFacts& f = s.facts;
    if (f.nodes == 1 || f.heterogeneous || s.settings.reports_failures()) return;
    slurm_error("slurm-dp: node %s: its tasks ended before their rendezvous; ending the step",
                f.host.c_str());
    end_step_on_all_nodes(f);
}

}  // namespace

std::string StepFacts::rank_zero_host() const {
    return host_at(node_list, 0).value_or("");
}

uint64_t root_mount() {
    struct statx mount {};
    if (statx(AT_FDCWD, "/", 0, STATX_MNT_ID, &mount) == 0 && (mount.stx_mask & STATX_MNT_ID))
        return mount.stx_mnt_id;
    // For Linux before 5.8; takes twenty times as long.
    struct stat mounts {};
    return stat("/proc/self/ns/mnt", &mounts) == 0 ? mounts.st_ino : 0;
}

void node_post_options(spank_t spank) {
    State& s = state();
    uint32_t step_id = 0;
    if (environment_value(spank, kSecretVariable).value_or("").empty()) return;
    if (spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS || step_id >= kFirstSpecialStep)
        return;
    s.active = true;
    if (auto built = s.handover.build(); !built) s.failure = built.error().message;
}

void node_user_init(spank_t spank) {
    State& s = state();
    if (!s.active) return;
    s.root_mount = root_mount();
    if (!s.failure) take_up_step(spank, s);
    // Neither a task nor its prolog or epilog may see them, whatever became of the step.
    for (const char* name : kLauncherVariables) spank_unsetenv(spank, name);
    if (!s.active || s.refused || s.failure) remove_slots(spank);  // else each task writes into its own
}

void node_task_forked(spank_t spank) {
    State& s = state();
    if (!s.active || s.refused || s.failure) return;
    const Loan loan(s);
    int local = 0;
    pid_t pid = 0;
    if (spank_get_item(spank, S_TASK_ID, &local) == ESPANK_SUCCESS &&
        spank_get_item(spank, S_TASK_PID, &pid) == ESPANK_SUCCESS)
        send_control(s.node.control_launcher.get(),
                     {ControlEvent::Kind::task, static_cast<uint32_t>(local), pid});
    // All tasks are forked before the first of these calls (mgr.c), so none needs our copies any more.
    if (++s.forked < s.facts.ranks.size()) return;
    remove_slots(spank);
    drop_daemon_ends(s.node);
    s.node.plan_file.reset();
    s.node.ready_read.reset();
}

void node_task_exited(spank_t spank) {
    State& s = state();
    if (!s.active || s.refused || s.failure) return;
    const Loan loan(s);
    int local = 0;
    int status = 0;
    if (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS)
        return;
    const int control = s.node.control_launcher.get();
    send_control(control, {ControlEvent::Kind::exit, static_cast<uint32_t>(local), status});
    s.signalled |= WIFSIGNALED(status);
    if (++s.exited < s.facts.ranks.size()) return;
    const auto pid = daemon_pid(control);
    const Fd daemon = pid ? open_daemon(control, *pid) : Fd();
    send_control(control, {ControlEvent::Kind::end});
    if (daemon) {
        const Ended ended = wait_until_gone(daemon, kDaemonLeaves);
        if (ended != Ended::gone)
            slurm_error(
                "slurm-dp: step %s: the rendezvous daemon (pid %d) did not leave within %ld ms and was %s",
                s.facts.name().c_str(), static_cast<int>(*pid), static_cast<long>(kDaemonLeaves.count()),
                ended == Ended::killed ? "killed" : "killed, but is still there");
    }
    const bool ranks_left = ranks_are_left(control);
    s.node.control_launcher.reset();
    if (ranks_left) end_step_on_all_nodes(s.facts);
    if (!pid && !s.signalled) end_step_without_daemon(s);
}

}  // namespace dp::plugin
