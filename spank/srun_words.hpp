// SPDX-License-Identifier: Apache-2.0
//
// What srun's own words say and Slurm does not tell its plugins: whether the user asked for a binding or
// Slurm chose it, and whether a step wants less than its job has.
#pragma once

#include <string_view>

namespace dp::plugin {

// Each function takes one word of srun's command line, in any spelling that getopt_long accepts.

// --cpu-bind, --mem-bind, and their old spellings.
bool binds_tasks(std::string_view word);

// Gres for the step itself. It then has none of those that it does not name (_copy_job_tres_to_step of
// Slurm's slurmctld), and may get less than its job has of those that it names.
bool asks_for_gres(std::string_view word);

// The same for a variable that srun reads instead of an option.
bool asks_for_gres(std::string_view variable, std::string_view value);

}  // namespace dp::plugin
