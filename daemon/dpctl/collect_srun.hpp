// SPDX-License-Identifier: Apache-2.0
//
// How `dpctl collect` gets to the nodes: in which job, and with which srun. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.hpp"

namespace dp {

struct SlurmJob {
    uint32_t id = 0;
    std::string state;  // "RUNNING"
    std::string user;
    std::string nodes;  // "node[01-02]"

    bool operator==(const SlurmJob&) const = default;
};
// The arguments with which squeue says that of a job, and the job among its lines (it tells an array's or a heterogeneous job's
// others, too); nullopt: Slurm does not know it (any more).
std::vector<std::string> squeue_command(uint32_t job);
std::optional<SlurmJob> read_squeue(std::string_view text, uint32_t job);

// The job whose nodes `user` asks for the records of `job`: that one, while it runs; else `own`, that dpctl runs in. A failure says how
// to get such a one.
Try<SlurmJob> job_to_ask(uint32_t job, const std::optional<SlurmJob>& known,
                         const std::optional<SlurmJob>& own, const std::string& user);

// One task of `program` on each node of the job.
std::vector<std::string> srun_command(const SlurmJob& job, size_t nodes,
                                      const std::vector<std::string>& program);

// What of this environment srun gets: what a batch script's job, or a user's profile, has there for other sruns would be options of
// this one (SLURM_*, SRUN_*), or make a world of it (SLURM_DP_*).
std::vector<std::string> environment_for_srun(const char* const* environment);

}  // namespace dp
