// SPDX-License-Identifier: Apache-2.0
//
// All differences between versions of Slurm's C interface, in one file.
#pragma once

extern "C" {
#include <slurm/slurm.h>
}

#include <cstdint>
#include <cstdio>
#include <string>

namespace dp::plugin {

// tests/cluster/localcluster/versions.py has all of them.
inline constexpr uint32_t kNewestTested = SLURM_VERSION_NUM(26, 5, 0);

// One line for slurmd's log if the plugin was built for a Slurm newer than any it was tested with; else empty.
inline std::string untested_slurm(uint32_t built_for) {
    if (built_for >> 8 <= kNewestTested >> 8) return "";
    char line[160];
    std::snprintf(line, sizeof line,
                  "built for Slurm %u.%02u, newer than the newest tested (%u.%02u); jobs run, but look for a "
                  "newer slurm-dp",
                  built_for >> 16, built_for >> 8 & 0xff, kNewestTested >> 16, kNewestTested >> 8 & 0xff);
    return line;
}

inline slurm_step_id_t step_id_of(uint32_t job_id, uint32_t step_id = NO_VAL) {
    slurm_step_id_t id{};
    id.job_id = job_id;
    id.step_id = step_id;
    id.step_het_comp = NO_VAL;
    return id;
}

// Sends a signal such as SIGKILL to every task of the step, on all its nodes.
inline int kill_step(uint32_t job_id, uint32_t step_id, uint16_t signal) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
    slurm_step_id_t id = step_id_of(job_id, step_id);
    return slurm_kill_job_step(&id, signal, 0);
#elif SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
    return slurm_kill_job_step(job_id, step_id, signal, 0);
#else
    return slurm_kill_job_step(job_id, step_id, signal);
#endif
}

// The step as slurmctld knows it; to be freed.
inline int get_step(uint32_t job_id, uint32_t step_id, job_step_info_response_msg_t** steps) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
    slurm_step_id_t id = step_id_of(job_id, step_id);
    return slurm_get_job_steps(&id, steps, SHOW_ALL | SHOW_LOCAL);
#else
    return slurm_get_job_steps(0, job_id, step_id, steps, SHOW_ALL | SHOW_LOCAL);
#endif
}

// The job as slurmctld knows it; to be freed.
inline int get_job(uint32_t job_id, job_info_msg_t** jobs) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
    return slurm_load_job(jobs, step_id_of(job_id), SHOW_DETAIL | SHOW_LOCAL);
#else
    return slurm_load_job(jobs, job_id, SHOW_DETAIL | SHOW_LOCAL);
#endif
}

}  // namespace dp::plugin
