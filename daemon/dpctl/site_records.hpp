// SPDX-License-Identifier: Apache-2.0
//
// `dpctl report --job`: where a site records its steps (record= in plugstack.conf).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/failure.hpp"

namespace dp {

// The files of a job's records as glob(7) finds them, by the plugin's line in plugstack.conf, as words. Pure.
Try<std::string> pattern_of_records(const std::vector<std::string>& plugin_line, uint32_t job);

// The files themselves, as far as this machine sees them.
Try<std::vector<std::string>> records_of_job(uint32_t job);

}  // namespace dp
