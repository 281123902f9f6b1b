// SPDX-License-Identifier: Apache-2.0
#include "tiles.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <new>

#include "common/hostlist.hpp"
#include "common/task_environment.hpp"
#include "slurm_versions.hpp"
#include "tiles/conf.hpp"

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
    if (get_job(job_id, &jobs) != SLURM_SUCCESS) return cannot_ask("job");
    const std::unique_ptr<job_info_msg_t, void (*)(job_info_msg_t*)> loaded(jobs, slurm_free_job_info_msg);
    std::vector<std::pair<std::string, std::string>> nodes;
    for (uint32_t i = 0; i < jobs->record_count; ++i) {
        const job_info_t& job = jobs->job_array[i];
        if (job.job_id != job_id) continue;
        const auto names = DP_TRY(expand_hostlist(job.nodes ? job.nodes : ""));
        for (uint32_t node = 0; node < names.size() && node < job.gres_detail_cnt; ++node)
            nodes.emplace_back(names[node], job.gres_detail_str[node] ? job.gres_detail_str[node] : "");
    }
    return write_job_gres(nodes);
}

Try<std::string> gres_of_step(uint32_t job_id, uint32_t step_id) {
    job_step_info_response_msg_t* steps = nullptr;
    if (get_step(job_id, step_id, &steps) != SLURM_SUCCESS) return cannot_ask("step");
    std::string gres;
    const auto text = [](const char* tres) { return std::string(tres ? tres : ""); };
    for (uint32_t i = 0; i < steps->job_step_count; ++i)
        if (const auto& step = steps->job_steps[i]; step.step_id.step_id == step_id)
            gres = text(step.tres_per_node) + "|" + text(step.tres_per_task);
    slurm_free_job_step_info_response_msg(steps);
    return gres;
}

Try<NodeTiles> gather_tiles(const StepFacts& step, const Settings& settings, const std::string& tiles_conf,
                            const GetVariable& get) {
    auto inventory = DP_TRY(read_inventory(tiles_conf, step.host));
    if (!inventory)
        return fail("--dp-tiles: no accelerator was found here, and " + tiles_conf + " does not name node " +
                    step.host + "; leave --dp-tiles out, or have its tiles written there (tiles.conf(5))");
    NodeTiles tiles;
    tiles.inventory = std::move(*inventory);
    const std::string& gres = tiles.inventory.layout.gres;
    if (step.heterogeneous && gres != "gpu")
        return fail(
            "--dp-tiles: in a heterogeneous step (srun A : B) a node knows only what it was given of "
            "gres gpu, not of " +
            gres + "; start the components as separate steps");
    TileFacts& facts = tiles.facts;
    const auto detail = DP_TRY(gres_of_node(get(kGresVariable).value_or(""), step.host));
    facts.given = DP_TRY(parse_gres_detail(detail));
    if (const std::string asked = get(kStepGresVariable).value_or(""); !asked.empty())
        facts.step_count = units_of_step(asked, gres, step.ranks.size());
    facts.step_units = get("SLURM_STEP_GPUS").value_or("");
    if (const char* names = tiles.inventory.vendor->slurm_variable)
        facts.step_names = get(names).value_or("");
    facts.ranks = step.ranks;
    facts.per_rank = settings.tiles.value_or(0);
    facts.own_only = settings.visible == Visible::own;
    if (gres == "gpu") tiles.failure_told = OnceANode::shared_by_tasks();
    // Here as if every device could be opened; a task tries.
    if (auto shares = share_node(facts_of_task(tiles, 0, get))) {
        tiles.near = near_of_shares(tiles.inventory, shares->shares);
        tiles.shares = std::move(*shares);
    }
    return tiles;
}

TileFacts facts_of_task(const NodeTiles& tiles, uint32_t local_rank, const GetVariable& get) {
    TileFacts facts = tiles.facts;
    facts.inventory = &tiles.inventory;
    facts.local_rank = local_rank;
    facts.get = get;
    if (facts.inventory->layout.gres == "gpu") {                    // Slurm binds tasks to units of no other
        facts.gpu_binding = get(kGpuBindingVariable).value_or("");  // from Slurm in the task alone
        facts.task_names = facts.step_names;
        if (const char* names = facts.inventory->vendor->slurm_variable)
            facts.task_names = get(names).value_or("");
    }
    return facts;
}

Try<TilePlan> plan_of_task(const NodeTiles& tiles, TileFacts facts) {
    // Opens nothing; checks the device cgroup, too. Some devices are read-only (a MIG instance's capability).
    facts.open_error = [](const std::string& file) {
        struct stat status {};
        const bool read_only = stat(file.c_str(), &status) == 0 && (status.st_mode & 0222) == 0;
        return access(file.c_str(), read_only ? R_OK : R_OK | W_OK) == 0 ? 0 : errno;
    };
    return tiles.shares && !is_bound_by_slurm(facts) ? plan_rank(facts, *tiles.shares) : plan_tiles(facts);
}

}  // namespace dp::plugin
