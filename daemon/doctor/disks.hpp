// SPDX-License-Identifier: Apache-2.0
//
// The folders that a training writes to: room, and how fast.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "findings/finding.hpp"

namespace dp::doctor {

struct FolderFacts {
    std::string what;  // "working directory", "temporary files", "shared memory"
    std::string path;
    std::string problem;  // why nothing is known of it: it does not answer, it does not exist
    bool is_writable = true;
    bool is_in_memory = false;              // a tmpfs
    uint64_t size = 0, free = 0;            // bytes; free to this user
    uint64_t files = 0, files_free = 0;     // inodes; 0: this file system does not count them
    std::optional<double> write_bandwidth;  // bytes per second, with fsync; nullopt: not measured
    std::string writing_problem;
};

// The present working directory, TMPDIR, /dev/shm. Unless it is to be quick, writes a file without a name for a moment, which
// takes at most a second or two.
std::vector<FolderFacts> read_folders(Depth depth = Depth::all, const std::string& temporary = "");
Findings check_folders(const std::vector<FolderFacts>& folders);

}  // namespace dp::doctor
