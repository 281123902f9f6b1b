// SPDX-License-Identifier: Apache-2.0
//
// The tables of `dpctl top`: how ranks spent the time between two looks, as text, CSV and JSON. Pure.
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
    // The fraction of the time between the looks, by dp_phase_kind; nothing unless both have its phases.
    std::optional<std::array<double, kPhases>> percent;
    // CPU time of all threads, relative to one CPU; nothing if it was another process at the first look.
    std::optional<double> cpu_percent;
};

struct UsageTable {
    std::string step;
    std::string user;
    double unix_time = 0;        // of the second look, in seconds
    double seconds = 0;          // between the looks
    std::vector<UsageRow> rows;  // by node, then by local rank
    wire::StepUsage usage;       // the second look, for what is no row
    // By host, then by tile; empty: nothing about GPUs.
    std::map<std::string, std::map<uint32_t, wire::NodeUsage::Gpu>> gpus;
};

// `skip_idle`: leave out ranks that were idle all the time.
UsageTable usage_between(const wire::StepUsage& before, const wire::StepUsage& after, bool skip_idle);

// As text: one line per rank, with its tiles; then the nodes about which nothing is known, and why.
std::string usage_text(const UsageTable& table);
// The nodes about which nothing is known, and why: one line per problem.
std::string problems_of(const wire::StepUsage& usage);
// As CSV, one line per tile, and as JSON; dpctl(1) documents the columns and the keys.
std::string usage_csv_titles();
std::string usage_csv(const UsageTable& table);
std::string usage_json(const UsageTable& table);  // one line

// The part of the text that fits a terminal: the last line then says how many lines are left out.
std::string fit_screen(std::string_view text, size_t lines, size_t columns);

}  // namespace dp
