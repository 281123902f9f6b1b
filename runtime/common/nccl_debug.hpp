// SPDX-License-Identifier: Apache-2.0
//
// --dp-nccl-debug: a file for each rank, in which its NCCL says what it does, and what of that says why the rank failed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dp {

// The option's value: "off", "on", or a file's name with Slurm's patterns (sbatch(1)): %j job, %s step, %t rank, %N node, %% a percent sign.
struct NcclDebug {
    std::string file;
    bool is_on() const { return file != "off"; }
    bool operator==(const NcclDebug&) const = default;
};

// Of one rank in one generation.
struct RankOfStep {
    uint32_t job_id = 0, step_id = 0;
    uint32_t rank = 0;
    uint32_t generation = 0;
    std::string node;
    std::string folder;  // in which a name without one is; "" if there is none any more
};

// Where that rank's NCCL writes, absolute; "" if it has nowhere to. Ranks and generations have files of their own, whatever the
// name. Pure, as are the next two.
std::string nccl_debug_file(const NcclDebug& wish, const RankOfStep& rank);
// The same as NCCL_DEBUG_FILE, in which NCCL has patterns of its own.
std::string for_nccl(const std::string& file);

// What follows "NCCL WARN" in the last line with that, after the line's time if it begins with one; "" if there is none.
std::string last_nccl_warning(std::string_view text);

// Of this process; "" if it was removed.
std::string working_directory();
// The same as nccl_debug_file, and "" with a warning where no file can be made: NCCL would write to standard output. May hang with
// the file system.
std::string usable_nccl_debug_file(const NcclDebug& wish, const RankOfStep& rank,
                                   std::vector<std::string>& warnings);

}  // namespace dp
