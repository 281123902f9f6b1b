// SPDX-License-Identifier: Apache-2.0
//
// What `trainer compile` prints at its end: a table for people, and a line of JSON. Pure;
// compile.cpp prints them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/compile/plan.hpp"
#include "trainer/compile/threads.hpp"

namespace dp::trainer {

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

std::string compile_table(const CompileResult& result);
nlohmann::ordered_json compile_json(const CompileResult& result);

}  // namespace dp::trainer
