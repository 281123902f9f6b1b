// SPDX-License-Identifier: Apache-2.0
#include "gres_question.hpp"

extern "C" {
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
}

#include <signal.h>

#include <cerrno>
#include <exception>
#include <utility>
#include <vector>

#include "common/hostlist.hpp"
#include "slurm_versions.hpp"
#include "tiles/gres.hpp"

namespace dp::plugin {
namespace {

tl::unexpected<Failure> cannot_ask(const char* what) {
    return fail(std::string("--dp-tiles: cannot ask slurmctld which gres the ") + what +
                " owns: " + slurm_strerror(errno));
}

Try<std::string> gres_of_job(uint32_t job_id) {
    job_info_msg_t* jobs = nullptr;
    if (slurm_load_job(&jobs, job_id, SHOW_DETAIL) != SLURM_SUCCESS) return cannot_ask("job");
    std::vector<NodeGres> nodes;
    Try<void> read;
    for (uint32_t i = 0; i < jobs->record_count && read; ++i) {
        const job_info_t& job = jobs->job_array[i];
        if (job.job_id != job_id) continue;
        auto names = expand_hostlist(job.nodes ? job.nodes : "");
        if (!names) read = tl::make_unexpected(names.error());
        for (uint32_t node = 0; names && node < names->size() && node < job.gres_detail_cnt; ++node)
            nodes.push_back({(*names)[node], job.gres_detail_str[node] ? job.gres_detail_str[node] : ""});
    }
    slurm_free_job_info_msg(jobs);
    if (!read) return tl::make_unexpected(read.error());
    return write_job_gres(nodes);
}

}  // namespace

void GresQuestion::ask(uint32_t job_id) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // a new thread starts with this one's
    try {
        asked_ = std::async(std::launch::async, gres_of_job, job_id);
        job_id_ = job_id;
    } catch (const std::exception&) {  // no thread, no memory: answer() says it if that lasts
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Try<std::string> GresQuestion::answer(uint32_t job_id) {
    if (asked_.valid()) {
        auto early = asked_.get();
        if (early && job_id == job_id_) return early;
    }
    return gres_of_job(job_id);
}

Try<std::string> gres_of_step(uint32_t job_id, uint32_t step_id) {
    job_step_info_response_msg_t* steps = nullptr;
    if (get_step(job_id, step_id, &steps) != SLURM_SUCCESS) return cannot_ask("step");
    std::string gres;
    for (uint32_t i = 0; i < steps->job_step_count; ++i)
        if (steps->job_steps[i].step_id.step_id == step_id && steps->job_steps[i].tres_per_node)
            gres = steps->job_steps[i].tres_per_node;
    slurm_free_job_step_info_response_msg(steps);
    return gres.empty() ? "none" : gres;
}

}  // namespace dp::plugin
