// SPDX-License-Identifier: Apache-2.0
//
// dpctl, run by the daemon for what would need libraries that it is not linked with.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dp {

// The dpctl beside this program, else the installed one.
std::string dpctl_program();

// Starts it with its standard output going to the descriptor. It inherits nothing else, not even an environment. 0: it could not
// be started.
pid_t spawn_helper(std::vector<std::string> command, int output);

}  // namespace dp
