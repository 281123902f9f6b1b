// SPDX-License-Identifier: Apache-2.0
//
// What a task's time goes to: the words of the ledger.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/phase_page.hpp"

namespace dp {

enum class Spent : uint8_t {
    compute,
    communication,
    waiting,
    load,
    checkpoint,
    idle,
    unlabelled,
    start,
    hang,
    restart,
    repeated,
    ended,
    spare,
    unknown,
};
inline constexpr size_t kSpent = 14;
using SpentTimes = std::array<double, kSpent>;  // seconds

inline double& of(SpentTimes& times, Spent what) {
    return times[static_cast<size_t>(what)];
}
inline double of(const SpentTimes& times, Spent what) {
    return times[static_cast<size_t>(what)];
}

struct SpentWord {
    const char* name;   // in JSON
    char letter;        // in a course
    const char* title;  // for people
    const char* meaning;
};
// By dp_phase_kind.
inline constexpr std::array<Spent, kPhases> kSpentInPhase = {Spent::idle, Spent::compute, Spent::load,
                                                             Spent::communication, Spent::checkpoint};

// "48 s: compute 71 %, load 16 %, start 13 %", the largest first; without what is less than half a percent. Where no waiting is told
// apart, communication may include it.
std::string spent_in_words(const SpentTimes& spent);

inline constexpr std::array<SpentWord, kSpent> kSpentWords = {{
    {"compute", 'c', "compute", "forward, backward and the optimizer's step"},
    {"communication", 'm', "communication", "the exchange itself, taken from the rank that waited least"},
    {"waiting", 'w', "waiting for others", "the rest of the communication: waiting for slower ranks"},
    {"load", 'l', "load", "reading, preparing and uploading data"},
    {"checkpoint", 'k', "checkpoint", "writing or reading a checkpoint"},
    {"idle", 'i', "idle", "the program said that it was idle"},
    {"unlabelled", 'u', "unlabelled", "the program ran and did not say what it did (dp_phase)"},
    {"start", 's', "start",
     "from the first daemon's start to the rank's first phase (without phases: to its communicator, hello or "
     "start)"},
    {"hang", 'h', "hang", "the rank made no progress for the hang timeout or longer"},
    {"restart", 'r', "restart", "from a failure to the first phase of the next generation"},
    {"repeated", 'x', "repeated work", "training steps that a restart, or a requeue, threw away"},
    {"ended", 'e', "ended", "the rank had ended while others still ran"},
    {"spare", '-', "spare", "a task without a rank"},
    {"unknown", '?', "not recorded", "the node's record ends before the run does"},
}};

}  // namespace dp
