// SPDX-License-Identifier: Apache-2.0
//
// `dpctl report --job` and `dpctl collect`: where a site records its steps (record= in plugstack.conf).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.hpp"

namespace dp {

// record= of the plugin's line in plugstack.conf, as words; Slurm's patterns are in it as they stand. Pure.
Try<std::string> site_directory(const std::vector<std::string>& plugin_line);
// Of this machine's plugstack.conf.
Try<std::string> site_directory();

// Where the records of a job's steps are, as glob(7) finds them, if they are in `directory` by --dp-record's rules. Pure.
std::string directories_of_job(std::string_view directory, uint32_t job, const std::string& node);

// The files of a job's records in the site's directory, as far as this machine sees them.
Try<std::vector<std::string>> records_of_job(uint32_t job);

}  // namespace dp
