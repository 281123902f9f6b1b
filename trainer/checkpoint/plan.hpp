// SPDX-License-Identifier: Apache-2.0
//
// Whether and when a training writes checkpoints: a part of Settings (training.hpp). options.cpp fills it,
// and run.cpp adds the signals.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace dp::trainer {

enum class Resume {
    automatic,  // go on from the newest whole checkpoint in the directory; begin where there is none
    must,       // refuse to begin where there is none
    never,      // refuse to begin where there is one
};

struct CheckpointPlan {
    std::filesystem::path directory;  // "": no checkpoints at all
    std::int64_t every = 0;           // optimizer steps from one to the next; 0: only at the end
    std::int64_t keep = 2;            // how many of the newest stay
    Resume resume = Resume::automatic;
    // The number of the signal that asked this rank to stop; 0: none so far. Empty: none ever will.
    std::function<int()> stop_signal;
};

}  // namespace dp::trainer
