// SPDX-License-Identifier: Apache-2.0
//
// All checks of one machine, and what of it other machines are compared with.
#pragma once

#include <string>
#include <vector>

#include "base/failure.hpp"
#include "doctor/comparison.hpp"
#include "doctor/finding.hpp"

namespace dp::doctor {

struct Examination {
    std::string host;
    std::vector<Topic> topics;
    NodeFacts facts;
};

struct Machine {
    std::string program;       // "": none; else its libraries are looked at, too
    std::string version = {};  // of slurm-dp
    // Except in tests these are the machine's own.
    std::string root = {};
    std::string nvml = "libnvidia-ml.so.1";
    std::string scontrol = "scontrol";
};

Examination examine_machine(const Machine& machine);

// For other nodes of a step.
std::string to_text(const Examination& examination);
Try<Examination> examination_from(const std::string& text);

}  // namespace dp::doctor
