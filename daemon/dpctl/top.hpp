// SPDX-License-Identifier: Apache-2.0
//
// `dpctl top`: what the ranks of a step do with their time, tile by tile, live.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dp {

struct TopOptions {
    std::string step;  // as of dpctl status
    bool once = false;
    std::optional<uint64_t> count;   // so many tables; else until Ctrl-C or the step's end
    std::optional<double> interval;  // seconds
    bool csv = false;
    bool json = false;
    bool skip_idle = false;
};

// Returns the exit code: 0 also at the end of the step, if there was a table.
int show_top(const TopOptions& options);

}  // namespace dp
