// SPDX-License-Identifier: Apache-2.0
//
// Whether and when a training writes checkpoints: a part of Settings. run.cpp adds the signals.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace dp::trainer {

enum class Resume {
    automatic,  // from the newest whole checkpoint in the directory, if there is one
    must,       // fail if there is none
    never,      // fail if there is one
};

struct CheckpointPlan {
    std::filesystem::path directory;  // "": no checkpoints at all
    std::int64_t every = 0;           // optimizer steps from one to the next; 0: only at the end
    bool is_async = false;            // those before the end are written while the training goes on
    std::int64_t keep = 2;            // how many of the newest stay
    Resume resume = Resume::automatic;
    bool succeeds = false;             // an earlier generation of the step may have the directory
    std::function<int()> stop_signal;  // the signal that asked this rank to stop; 0: none so far
};

}  // namespace dp::trainer
