// SPDX-License-Identifier: Apache-2.0
//
// dpctl's subcommands: the options of each, and the function that does it and returns the exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "tiles/inventory.hpp"

namespace dp {

// slurmstepd's part on one machine: starts the daemon and the ranks, and leaves nothing behind.
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

// What a step's ranks are doing.
struct StatusOptions {
    std::string step;  // "123.0" or "123"; "": that of DP_SOCKET, else the only one here
    bool json = false;
};
int show_status(const StatusOptions& options);

// How a world came up, rank by rank, and which rank to look at.
int show_waterfall(const std::string& step);

// A node's accelerators and the numbers of their tiles.
struct TilesOptions {
    std::string conf = kTilesConf;
    std::string node;  // "": this one
    bool json = false;
    // Except in tests these are the machine's own.
    std::string root = {};
    std::string nvml = "libnvidia-ml.so.1";
    std::string scontrol = "scontrol";
};
// 1 if nothing is known about the node, 2 if tiles.conf has a mistake.
int show_tiles(const TilesOptions& options);

// What the ranks of a step do with their time, tile by tile, live.
struct TopOptions {
    std::string step;
    bool once = false;
    std::optional<uint64_t> count;   // so many tables; else until Ctrl-C or the step's end
    std::optional<double> interval;  // seconds
    bool csv = false;
    bool json = false;
    bool skip_idle = false;
};
// 0 also at the end of the step, if there was a table.
int show_top(const TopOptions& options);

}  // namespace dp
