// SPDX-License-Identifier: Apache-2.0
//
// The plugin in slurmstepd: binds the node's sockets before its tasks are forked, tells the daemon what
// becomes of them, and sees the daemon gone before the last task_exit returns (a process that is still there
// when Slurm empties the step's container costs the step a second).
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <thread>

#include "base/text.hpp"
#include "common/control.hpp"
#include "environment.hpp"
#include "slurm_versions.hpp"
#include "state.hpp"

namespace dp::plugin {
namespace {

// Batch, interactive and extern steps have numbers from here on (slurm.h: SLURM_MAX_NORMAL_STEP_ID).
constexpr uint32_t kFirstSpecialStep = 0xfffffff0;

// By name or number. A step does not fail because nobody may watch it.
uid_t user_id(const std::string& user) {
    if (const auto number = parse_number<uid_t>(user)) return *number;
    passwd entry{};
    passwd* found = nullptr;
    std::array<char, 16384> text{};
    if (getpwnam_r(user.c_str(), &entry, text.data(), text.size(), &found) == 0 && found) return entry.pw_uid;
    slurm_info(
        "slurm-dp: plugstack.conf: exporter=%s: this node has no such user, so dpctl exporter shows no step",
        user.c_str());
    return 0;
}

Try<void> prepare(State& s) {
    const StepFacts& f = s.facts;
    if (s.settings.interface)
        s.interface = DP_TRY(choose_interface(*s.settings.interface, all_interfaces(), f.host, f.nodes));
    PortWishes ports;
    if (f.has_rank_zero()) {
        ports.candidates = candidate_ports(f.port_seed);
        ports.ephemeral = read_ephemeral_range();
        ports.master = *s.settings.port;
        ports.serve_master = s.settings.serves_torch();
    }
    const bool tasks_tell = s.settings.tasks_tell();
    auto node = prepare_node(s.site.daemon, f.name(), f.user, ports, tasks_tell);
    if (!node && f.heterogeneous && f.has_rank_zero()) {
        // It is rank 0 of its component, and perhaps only of that.
        s.broker_failure = node.error().message;
        node = prepare_node(s.site.daemon, f.name(), f.user, {}, tasks_tell);
    }
    s.node = DP_TRY(std::move(node));
    if (!s.site.exporter.empty()) s.exporter = user_id(s.site.exporter);
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

// Prepares what a node needs before its tasks are forked, if the step is to have a world (s.refused, s.active).
Try<void> take_up_step(spank_t spank, State& s) {
    const EnvironmentList variables = environment_list(spank);
    const GetVariable get = std::cref(variables);
    const std::string step = get(kStepVariable).value_or("");
    s.refused = step == kRefusedStep;
    if (s.refused) return {};
    DP_TRY(gather_facts(spank, get, s.facts));  // first: every failure needs them
    DP_TRY(s.handover_built);
    const auto settings = DP_TRY(read_settings(step));
    s.settings = with_defaults(settings);
    s.own_options = step.find(kOwnOptions) != std::string::npos;
    s.own_binding = step.find(kOwnBinding) != std::string::npos;
    if (s.facts.heterogeneous) {
        // srun knows only one component; it has judged every other step before it launched it.
        const StepVerdict verdict = judge_step(s.settings, s.own_options ? s.settings : Settings{},
                                               s.facts.world_size, s.facts.nodes);
        if (verdict.decision == StepVerdict::refuse) return fail(verdict.why);
        s.active = verdict.decision == StepVerdict::apply;
        if (!s.active) return {};
        if (s.settings.outlives_nodes())
            return fail(
                "--dp-spares and --dp-min-nodes do not work in a heterogeneous step, whose nodes differ; "
                "leave them out, or give --dp-on-failure=abort");
    }
    s.facts.world_size = world_size(s.settings, s.facts.world_size, s.facts.nodes);
    if (s.settings.tiles) s.tiles = DP_TRY(gather_tiles(s.facts, s.settings, s.site.tiles_conf, get));
    for (size_t i = 0; i < kNamesOfWorld.size(); ++i) s.world_of_user[i] = get(kNamesOfWorld[i]);
    DP_TRY(prepare(s));
    return s.handover.put(s.node);
}

// Slurm runs a task's epilog with the node's environment, not with the task's. (A node's place in a
// heterogeneous step is known to its tasks alone.)
void tell_epilogs(spank_t spank, const State& s) {
    if (s.facts.heterogeneous || s.facts.ranks.empty()) return;
    EnvironmentList variables = environment_list(spank);
    const GetVariable get = std::cref(variables);
    const auto changes = node_variables(task_facts(s, s.facts.ranks.front(), 0), s.wishes(get));
    change_environment(spank, std::move(variables), changes);
}

// Ends the step on all nodes, through slurmctld.
void end_step_on_all_nodes(const StepFacts& f) {
    std::this_thread::sleep_for(kLastLineTravels);
    kill_step(f.job_id, f.step_id, SIGKILL);
}

// No task of the node started a daemon: another plugin failed before (a container could not be made), or ours
// inside a container. That message reaches the user; the other nodes need not wait for this one.
void end_step_without_daemon(const State& s) {
    const StepFacts& f = s.facts;
    if (f.nodes == 1 || f.heterogeneous || s.settings.reports_failures()) return;
    slurm_error("slurm-dp: node %s: its tasks ended before their rendezvous; ending the step",
                f.host.c_str());
    end_step_on_all_nodes(f);
}

}  // namespace

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
    char secret[128] = {};
    if (spank_getenv(spank, kSecretVariable, secret, sizeof secret) != ESPANK_SUCCESS || !*secret) return;
    if (spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS || step_id >= kFirstSpecialStep)
        return;
    s.active = true;
    s.handover_built = s.handover.build();
}

void node_user_init(spank_t spank) {
    State& s = state();
    if (!s.active) return;
    s.root_mount = root_mount();
    if (auto taken_up = take_up_step(spank, s); !taken_up) {
        s.failure = taken_up.error().message;
        s.node = NodeSetup();
    }
    // Neither a task nor its prolog or epilog may see them, whatever became of the step.
    for (const char* name : kLauncherVariables) spank_unsetenv(spank, name);
    if (s.active && !s.refused && !s.failure) return;
    s.handover.abandon();
    remove_slots(spank);  // else each task writes into its own
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
    tell_epilogs(spank, s);
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
