// SPDX-License-Identifier: Apache-2.0
//
// The plugin in srun, sbatch and salloc: checks the options before anything starts, passes them on to the
// sruns inside a job, and gives each step its secret and the name of rank 0's host.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/read_file.hpp"
#include "slurm_versions.hpp"
#include "srun_words.hpp"
#include "state.hpp"

namespace dp::plugin {
namespace {

// Ends srun (sbatch, salloc) before it has asked for anything. An error code would not do: Slurm ignores it
// from a plugin with `optional` in plugstack.conf.
[[noreturn]] void refuse(const std::string& why) {
    slurm_error("slurm-dp: %s", why.c_str());
    std::exit(1);
}

// The same once the step exists. Ending srun now would leave the step, and the CPUs it holds, in slurmctld.
// So the step is launched, and each task ends before it becomes its program (see node_user_init).
void refuse_step(const std::string& why) {
    slurm_error("slurm-dp: %s", why.c_str());
    setenv(kStepVariable, kRefusedStep, 1);
}

void set_environment(const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
}

// Empty, not unset: srun has copied its environment before the step was created, and only merges it after.
Try<void> leave_step_alone() {
    for (const char* name : kLauncherVariables)
        if (std::getenv(name)) setenv(name, "", 1);
    state().active = false;
    return {};
}

// Whether one of srun's own words, before those of the program, matches.
bool is_given(bool (*is_such)(std::string_view word), int words_of_program) {
    const std::string text = read_file("/proc/self/cmdline");
    auto words = split(text, '\0');
    const size_t behind = static_cast<size_t>(words_of_program) + 1;  // an empty one behind the last \0
    words.resize(words.size() - std::min(words.size(), behind));
    return std::any_of(words.begin(), words.end(), is_such);
}

// Leaves for the nodes what they need to know about the step's tiles. Asking slurmctld in a separate process
// while srun waits for the step would cost more than it saves: all of srun's pages would be copied on write.
Try<void> tell_of_tiles(uint32_t job_id, uint32_t step_id, int words_of_program) {
    const auto job = DP_TRY(gres_of_job(job_id));
    set_environment(kGresVariable, job);
    if (environment_asks_for_gres(get_environment) || is_given(asks_for_gres, words_of_program)) {
        const auto step = DP_TRY(gres_of_step(job_id, step_id));
        set_environment(kStepGresVariable, step);
    }
    if (is_given(binds_tasks, words_of_program))
        set_environment(kStepVariable, get_environment(kStepVariable).value_or("") + " " + kOwnBinding);
    return {};
}

std::string distribution_of_tasks() {
    return get_environment("SLURM_DISTRIBUTION").value_or("");
}

// Task 0 is on the step's first node, except with --distribution=arbitrary, where the node list is sorted and
// the tasks follow the host file. srun tells its tasks the distribution, and with them us; if it does not, we
// ask (a round trip to slurmctld: 2 ms).
bool rank_zero_is_on_the_first_node() {
    const std::string distribution = distribution_of_tasks();
    return !distribution.empty() && !distribution.starts_with("arbitrary");
}

// The nodes by their lowest ranks, asked of the step's layout.
Try<std::string> node_order(uint32_t job_id, uint32_t step_id) {
    slurm_step_id_t id = step_id_of(job_id, step_id);
    slurm_step_layout_t* layout = slurm_job_step_layout_get(&id);
    if (!layout)
        return fail(std::string("cannot get the step's layout from slurmctld: ") + slurm_strerror(errno));
    std::vector<std::pair<uint32_t, std::string>> nodes;
    auto hosts = expand_hostlist(layout->node_list ? layout->node_list : "");
    for (uint32_t node = 0; hosts && node < layout->node_cnt && node < hosts->size(); ++node)
        if (const uint32_t* ranks = layout->tids[node]; layout->tasks[node] > 0)
            nodes.emplace_back(*std::min_element(ranks, ranks + layout->tasks[node]), (*hosts)[node]);
    slurm_job_step_layout_free(layout);
    if (!hosts) return tl::unexpected(hosts.error());
    return compress_hostlist(in_rank_order(std::move(nodes)));
}

// srun does not know what sbatch or salloc was given.
void warn_of_lost_nodes(const Settings& settings, int words_of_program) {
    if (with_defaults(settings).outlives_nodes() && !get_environment("SLURM_NO_KILL") &&
        !is_given(asks_for_no_kill, words_of_program))
        slurm_info(
            "slurm-dp: Slurm will end this step when it marks one of its nodes down; give --no-kill to srun, "
            "and to sbatch or salloc");
}

Try<void> prepare_step(spank_t spank, State& s) {
    uint32_t job_id = 0;
    uint32_t step_id = 0;
    uint32_t tasks = 0;
    uint32_t nodes = 0;
    int argc = 0;
    char** argv = nullptr;
    if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &step_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS)
        return fail("this srun does not tell the plugin its job, step and tasks");
    if (spank_get_item(spank, S_JOB_NNODES, &nodes) != ESPANK_SUCCESS) nodes = 2;
    if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc > 0 && argv &&
        (is_mpi_launcher(argv[0]) ||
         (!s.command_line.any() && is_dpctl_without_a_world(argv[0], argc > 1 ? argv[1] : ""))))
        return leave_step_alone();
    // SPANK counts one component here; the nodes know all of them (node_user_init).
    if (s.components > 1) return {};
    const StepVerdict verdict = judge_step(s.settings, s.command_line, tasks, nodes);
    if (verdict.decision == StepVerdict::refuse) return fail(verdict.why);
    if (verdict.decision == StepVerdict::leave_alone) return leave_step_alone();
    const std::string distribution = distribution_of_tasks();
    if (nodes_in_reserve(s.settings) > 0 && tasks > nodes &&
        (distribution.starts_with("cyclic") || distribution.starts_with("plane")))
        return fail("--dp-spares needs consecutive ranks on each node, but the task distribution is " +
                    distribution + "; give --distribution=block");
    warn_of_lost_nodes(s.settings, argc);
    if (nodes > 1 && !rank_zero_is_on_the_first_node()) {
        const auto order = DP_TRY(node_order(job_id, step_id));
        set_environment(kNodeOrderVariable, order);
    }
    if (s.settings.tiles) DP_TRY(tell_of_tiles(job_id, step_id, argc));
    for (const auto& slot : empty_slots(s.settings.tiles.has_value()))
        set_environment(slot.name.c_str(), *slot.value);
    return {};
}

}  // namespace

void allocator_post_options() {
    if (auto why = contradiction(state().command_line)) refuse(*why);
    // Names that begin with SLURM_ survive --export=NONE and reach the sruns inside.
    for (const auto& [name, value] : settings_to_environment(state().command_line))
        set_environment(name.c_str(), value);
}

void launcher_post_options() {
    State& s = state();
    // Once for each component of a heterogeneous step.
    ++s.components;
    for (const char* name : kLauncherVariables) unsetenv(name);  // an outer step's
    auto inherited = settings_from_environment(get_environment);
    if (!inherited) refuse(inherited.error().message);
    if (!s.command_line.any() && !inherited->any()) return;

    s.settings = merge(merge(s.command_line, *inherited), s.site.defaults);
    if (auto why = contradiction(s.command_line)) refuse(*why);
    if (auto why = missing_option(s.command_line, s.settings)) refuse(*why);
    if (s.secret.empty()) {
        auto secret = make_secret();
        if (!secret) refuse(secret.error().message);
        s.secret = *secret;
    }
    // Not in local_user_init, from where the environment reaches one component of a heterogeneous step only.
    set_environment(kSecretVariable, s.secret);
    std::string text = write_settings(with_defaults(s.settings));
    if (s.command_line.any()) text.append(" ").append(kOwnOptions);
    // srun itself will set these later. With several components, its words look like the programs'.
    const auto is_set = [](const char* name) { return !get_environment(name).value_or("").empty(); };
    if (s.settings.tiles && (is_set("SLURM_CPU_BIND") || is_set("SLURM_MEM_BIND") ||
                             (s.components > 1 && is_given(binds_tasks, 0))))
        text.append(" ").append(kOwnBinding);
    set_environment(kStepVariable, text);
    unsetenv(kGpuBindingVariable);  // an outer step's: Slurm sets it where it binds this one's tasks
    s.active = true;
}

void launcher_step_created(spank_t spank) {
    if (!state().active) return;
    if (const auto ready = prepare_step(spank, state()); !ready) refuse_step(ready.error().message);
}

}  // namespace dp::plugin
