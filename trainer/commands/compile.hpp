// SPDX-License-Identifier: Apache-2.0
//
// `trainer compile`: does, for a model, a batch and a device, what a run would do before its first step (and
// refuses the same), finds the fastest choices, and keeps the results for runs with the same options.
#pragma once

#include <chrono>

#include "trainer/commands/options.hpp"
#include "trainer/compile/plan.hpp"
#include "trainer/compile/trials.hpp"

namespace dp::trainer {

// On several nodes, one process per node does the work, and rank 0 reports.
Result<void> compile(const Options& options, std::chrono::steady_clock::time_point started);

// none: not kept, because a run makes it as fast; kept: the existing entry is good; now: just made.
enum class Made { none, kept, now };

// `was`: why what was there was not kept, "stale (build)" say; "": nothing was.
struct CompiledData {
    std::string was;
    Made made = Made::none;
    std::int64_t bytes = 0;                     // of its entry
    double load_seconds = 0, read_seconds = 0;  // without the cache, and from it
};
struct CompiledPlan {
    std::string was;
    Made made = Made::now;
    Plan plan;
    std::vector<ThreadTrial> trials;
    std::vector<std::string> notes;  // of the choices that the device explains
};

struct CompileResult {
    std::string model, device, device_name;
    std::int64_t batch = 0, accumulate = 1;
    int threads = 1;  // of the CPU device, without a choice
    std::string directory;
    CompiledData data;
    CompiledPlan plan;
    std::int64_t cache_bytes = 0;  // of all entries there
    std::int64_t removed = 0;      // entries, to keep --cache-limit
    double seconds = 0;
};

// Pure: a line for each choice that the device explains, "ours: why" or "cudnn 91900: why". `is_kept`: trainings will go by the
// choices, as a whole step is faster with them.
std::vector<std::string> notes_of(const TunedChoices& choices, bool is_kept);

// Pure: what is printed at the end, a table for people and a line of JSON.
std::string compile_table(const CompileResult& result);
nlohmann::ordered_json compile_json(const CompileResult& result);

}  // namespace dp::trainer
