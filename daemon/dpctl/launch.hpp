// SPDX-License-Identifier: Apache-2.0
//
// `dpctl launch`: slurmstepd's part on one machine. It prepares the node, starts the daemon and the ranks,
// tells the daemon what becomes of them, and leaves nothing behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/options.hpp"

namespace dp {

struct LaunchOptions {
    uint32_t ranks = 0;
    Settings settings;  // no world, no interface, no dry run
    std::string daemon;
    std::vector<std::string> command;
};

// Returns 0 if every rank succeeded, else the first failed rank's code, or 128 + its signal; 1 if nothing was
// started; 127 if the program does not exist, 126 if it cannot be run. Ranks that do not end at SIGINT,
// SIGTERM, SIGHUP or SIGQUIT are killed: 128 + that signal.
int launch(const LaunchOptions& options);

}  // namespace dp
