// SPDX-License-Identifier: Apache-2.0
//
// What srun's own words say of which Slurm tells its plugins nothing: whether a binding was asked for or is
// Slurm's own choice, and whether a step wants less than its job has.
#pragma once

#include <string_view>

namespace dp::plugin {

// Each of one word of srun's command line, in any spelling that getopt_long takes.

// --cpu-bind, --mem-bind, and how they were spelled once.
bool binds_tasks(std::string_view word);

// Gres of the step's own. It has then none of those that it does not name (_copy_job_tres_to_step of Slurm's
// slurmctld), and what it names may be less than its job has.
bool asks_for_gres(std::string_view word);

// The same of a variable that srun reads in place of an option.
bool asks_for_gres(std::string_view variable, std::string_view value);

}  // namespace dp::plugin
