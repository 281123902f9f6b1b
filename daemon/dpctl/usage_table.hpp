// SPDX-License-Identifier: Apache-2.0
//
// The tables of `dpctl top`: what became of the ranks' time between two looks at a step, for people and for
// machines. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/phase_page.hpp"
#include "dp.pb.h"

namespace dp {

struct UsageRow {
    std::string host;
    wire::NodeUsage::Rank rank;
    // Of the time between the looks, by dp_phase_kind; nothing where the rank has told no phases, or not yet
    // at the first look.
    std::optional<std::array<double, kPhases>> percent;
    // Of one CPU, what all threads of its process have worked; nothing where the process is another, or was
    // not there yet at the first look.
    std::optional<double> cpu_percent;
};

struct UsageTable {
    std::string step;
    std::string user;
    double unix_time = 0;        // of the second look, in seconds
    double seconds = 0;          // between the looks
    std::vector<UsageRow> rows;  // by node, then by local rank
    wire::StepUsage usage;       // the second look, for what is no row
    // By host, then by tile; none: nothing is said of GPUs.
    std::map<std::string, std::map<uint32_t, wire::NodeUsage::Gpu>> gpus;
};

// `skip_idle`: without the ranks that did nothing at all.
UsageTable usage_between(const wire::StepUsage& before, const wire::StepUsage& after, bool skip_idle);

// For people: a line a rank, its tiles together; then the nodes of which nothing is known, and why.
std::string usage_text(const UsageTable& table);
// Of the nodes of which nothing is known, which and why: a line for those with the same problem.
std::string problems_of(const wire::StepUsage& usage);
// For machines: a line a tile; dpctl(1) tells the columns and the keys.
std::string usage_csv_titles();
std::string usage_csv(const UsageTable& table);
std::string usage_json(const UsageTable& table);  // one line

// What of the text fits a terminal: the last line then says how many are left out.
std::string fit_screen(std::string_view text, size_t lines, size_t columns);

}  // namespace dp
