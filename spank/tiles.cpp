// SPDX-License-Identifier: Apache-2.0
#include "tiles.hpp"

extern "C" {
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
}

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "common/hostlist.hpp"
#include "common/task_environment.hpp"
#include "slurm_versions.hpp"
#include "tiles/discover.hpp"
#include "tiles/gres.hpp"
#include "tiles/vendor.hpp"

namespace dp::plugin {

namespace {

tl::unexpected<Failure> cannot_ask(const char* what) {
    return fail(std::string("--dp-tiles: cannot ask slurmctld which gres the ") + what +
                " owns: " + slurm_strerror(errno));
}

}  // namespace

OnceANode OnceANode::shared_by_tasks() {
    OnceANode once;
    void* const memory =
        mmap(nullptr, sizeof(std::atomic_flag), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) once.flag_ = new (memory) std::atomic_flag();
    return once;
}

Try<std::string> gres_of_job(uint32_t job_id) {
    job_info_msg_t* jobs = nullptr;
    if (slurm_load_job(&jobs, job_id, SHOW_DETAIL | SHOW_LOCAL) != SLURM_SUCCESS) return cannot_ask("job");
    std::vector<NodeGres> nodes;
    Try<void> read;
    for (uint32_t i = 0; i < jobs->record_count && read; ++i) {
        const job_info_t& job = jobs->job_array[i];
        if (job.job_id != job_id) continue;
        auto names = expand_hostlist(job.nodes ? job.nodes : "");
        if (!names) read = tl::unexpected(names.error());
        for (uint32_t node = 0; names && node < names->size() && node < job.gres_detail_cnt; ++node)
            nodes.push_back({(*names)[node], job.gres_detail_str[node] ? job.gres_detail_str[node] : ""});
    }
    slurm_free_job_info_msg(jobs);
    if (!read) return tl::unexpected(read.error());
    return write_job_gres(nodes);
}

Try<std::string> gres_of_step(uint32_t job_id, uint32_t step_id) {
    job_step_info_response_msg_t* steps = nullptr;
    if (get_step(job_id, step_id, &steps) != SLURM_SUCCESS) return cannot_ask("step");
    StepGres gres;
    const auto text = [](const char* tres) { return std::string(tres ? tres : ""); };
    for (uint32_t i = 0; i < steps->job_step_count; ++i)
        if (const auto& step = steps->job_steps[i]; step.step_id.step_id == step_id)
            gres = {text(step.tres_per_node), text(step.tres_per_task)};
    slurm_free_job_step_info_response_msg(steps);
    return write_step_gres(gres);
}

Try<NodeTiles> gather_tiles(const StepFacts& step, const std::string& tiles_conf, const GetVariable& get) {
    auto inventory = DP_TRY(read_inventory(tiles_conf, step.host));
    if (!inventory)
        return fail("--dp-tiles: no accelerator was found here, and " + tiles_conf + " does not name node " +
                    step.host + "; leave --dp-tiles out, or have its tiles written there (tiles.conf(5))");
    NodeTiles tiles;
    tiles.inventory = std::move(*inventory);
    tiles.says_where = tiles.inventory.says_where();
    const std::string& gres = tiles.inventory.layout.gres;
    if (step.heterogeneous && gres != "gpu")
        return fail(
            "--dp-tiles: in a heterogeneous step (srun A : B) a node knows only what it was given of "
            "gres gpu, not of " +
            gres + "; start the parts as steps of their own");
    auto detail = DP_TRY(gres_of_node(get(kGresVariable).value_or(""), step.host));
    auto given = DP_TRY(parse_gres_detail(detail));
    tiles.given = std::move(given);
    if (const std::string asked = get(kStepGresVariable).value_or(""); !asked.empty())
        tiles.step_count = read_step_gres(asked).units_on_node(gres, step.ranks.size());
    tiles.step_units = get("SLURM_STEP_GPUS").value_or("");
    if (const char* names = tiles.inventory.vendor->slurm_variable)
        tiles.step_names = get(names).value_or("");
    if (gres == "gpu") tiles.failure_told = OnceANode::shared_by_tasks();
    return tiles;
}

TileFacts tile_facts(const StepFacts& step, const Settings& settings, const NodeTiles& tiles,
                     uint32_t local_rank, const GetVariable& get) {
    TileFacts facts;
    facts.inventory = &tiles.inventory;
    facts.given = tiles.given;
    facts.step_count = tiles.step_count;
    facts.step_units = tiles.step_units;
    facts.step_names = tiles.step_names;
    if (facts.inventory->layout.gres == "gpu") {                    // Slurm binds tasks to units of no other
        facts.gpu_binding = get(kGpuBindingVariable).value_or("");  // from Slurm in the task alone
        facts.task_names = facts.step_names;
        if (const char* names = facts.inventory->vendor->slurm_variable)
            facts.task_names = get(names).value_or("");
    }
    facts.ranks = step.ranks;
    facts.local_rank = local_rank;
    facts.per_rank = settings.tiles.value_or(0);
    facts.own_only = settings.visible == Visible::own;
    facts.get = get;
    return facts;
}

Try<TilePlan> plan_of_task(const NodeTiles& tiles, const TileFacts& facts) {
    return tiles.shares && !is_bound_by_slurm(facts) ? plan_rank(facts, *tiles.shares) : plan_tiles(facts);
}

void plan_tasks(NodeTiles& tiles, TileFacts facts) {
    tiles.settled = tiles.inventory.layout.gres != "gpu";  // of which Slurm may yet give each task its own
    const GetVariable get = std::move(facts.get);
    facts.get = [&](const char* name) {
        std::pair<std::string, std::optional<std::string>> answer(name, get(name));
        if (std::find(tiles.asked.begin(), tiles.asked.end(), answer) == tiles.asked.end())
            tiles.asked.push_back(answer);
        return answer.second;
    };
    tiles.plans.reserve(facts.ranks.size());
    for (facts.local_rank = 0; facts.local_rank < facts.ranks.size(); ++facts.local_rank) {
        auto plan = plan_rank(facts, *tiles.shares);
        if (!plan) return tiles.plans.clear();
        tiles.plans.push_back(std::move(*plan));
    }
}

Try<const TilePlan*> find_plan(const NodeTiles& tiles, uint32_t local_rank, const GetVariable& get) {
    if (!tiles.settled || tiles.plans.empty()) return nullptr;
    for (const auto& [name, value] : tiles.asked)
        if (get(name.c_str()) != value) return nullptr;
    // Every task comes here. If there is nothing to do, not even the call is made: it would cost
    // a page fault.
    if (!tiles.shares->to_open.empty()) {
        DP_TRY(require_access(tiles.inventory, tiles.shares->to_open, open_error));
    }
    return &tiles.plans[local_rank];
}

int open_error(const std::string& file) {
    // The kernel checks the device cgroup here, too, and nothing is opened. Nobody can write to some devices
    // (a MIG instance's capability).
    struct stat status {};
    const bool read_only = stat(file.c_str(), &status) == 0 && (status.st_mode & 0222) == 0;
    return access(file.c_str(), read_only ? R_OK : R_OK | W_OK) == 0 ? 0 : errno;
}

}  // namespace dp::plugin
