// SPDX-License-Identifier: Apache-2.0
#include "step_facts.hpp"

#include "base/host_name.hpp"
#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "common/task_environment.hpp"

namespace dp::plugin {
namespace {

std::optional<std::string> host_at(const std::string& node_list, size_t place) {
    const auto hosts = Hostlist::read(node_list);
    return hosts ? hosts->at(place) : std::nullopt;
}

}  // namespace

std::string StepFacts::rank_zero_host() const {
    return host_at(node_list, 0).value_or("");
}

Try<void> gather_facts(spank_t spank, const GetVariable& get, StepFacts& f) {
    bool told = true;
    const auto ask = [&](spank_item_t item, auto& value) {
        told &= spank_get_item(spank, item, &value) == ESPANK_SUCCESS;
    };
    uint32_t local_tasks = 0;
    ask(S_JOB_UID, f.user);
    ask(S_JOB_ID, f.job_id);
    ask(S_JOB_STEPID, f.step_id);
    ask(S_JOB_NNODES, f.nodes);
    ask(S_JOB_NODEID, f.node_rank);
    ask(S_JOB_TOTAL_TASK_COUNT, f.world_size);
    ask(S_JOB_LOCAL_TASK_COUNT, local_tasks);
    f.leader_job_id = f.job_id;
    uint16_t cpus = 0;
    if (spank_get_item(spank, S_JOB_NCPUS, &cpus) == ESPANK_SUCCESS) f.cpus = cpus;
    const auto text = [&](const char* name) { return get(name).value_or(""); };
    const auto number = [&](const char* name) { return parse_number<uint32_t>(text(name)); };
    f.cpus_per_task = number("SLURM_CPUS_PER_TASK").value_or(0);
    // S_SLURM_RESTART_COUNT is always 0 in a step: slurmstepd never fills it in (slurmstepd_job.c).
    f.generation = number("SLURM_RESTART_COUNT").value_or(0);
    f.node_list = text("SLURM_STEP_NODELIST");
    f.secret = text(kSecretVariable);
    const uint32_t all_tasks = number("SLURM_STEP_NUM_TASKS").value_or(f.world_size);
    f.heterogeneous = all_tasks != f.world_size;
    // srun sorts the nodes of a heterogeneous step, so a node's number does not lead to it.
    if (told && !f.heterogeneous) f.host = host_at(f.node_list, f.node_rank).value_or("");
    if (f.host.empty()) f.host = text("SLURMD_NODENAME");
    if (f.host.empty()) f.host = host_name();
    if (!told) return fail("slurmstepd does not tell the plugin its step");
    for (uint32_t local = 0; local < local_tasks; ++local) {
        uint32_t rank = 0;
        if (spank_get_item(spank, S_JOB_LOCAL_TO_GLOBAL_ID, local, &rank) != ESPANK_SUCCESS)
            return fail("slurmstepd does not tell the plugin the rank of local task " +
                        std::to_string(local));
        f.ranks.push_back(rank);
    }
    if (f.heterogeneous) {
        f.world_size = all_tasks;
        f.nodes = number("SLURM_STEP_NUM_NODES").value_or(f.nodes);
        // Components may differ in job id and reserved ports, but share the secret: 32 of its 256 bits.
        std::from_chars(f.secret.data(), f.secret.data() + std::min<size_t>(8, f.secret.size()),
                        f.port_seed.job_id, 16);
        return {};
    }
    if (std::string order = text(kNodeOrderVariable); !order.empty()) {
        const auto hosts = expand_hostlist(order).value_or(std::vector<std::string>{});
        const auto here = std::find(hosts.begin(), hosts.end(), f.host);
        if (here == hosts.end()) return fail("srun's list of the step's nodes does not have this one");
        f.node_rank = static_cast<uint32_t>(here - hosts.begin());
        f.node_list = std::move(order);
    }
    f.port_seed = {f.job_id, f.step_id, f.generation, text("SLURM_STEP_RESV_PORTS")};
    return {};
}

}  // namespace dp::plugin
