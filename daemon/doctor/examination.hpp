// SPDX-License-Identifier: Apache-2.0
//
// All checks of one machine, and what of it other machines are compared with.
#pragma once

#include <string>
#include <vector>

#include "dp.pb.h"
#include "findings/comparison.hpp"
#include "findings/finding.hpp"

namespace dp::doctor {

struct Examination {
    std::string host;
    std::vector<Topic> topics;
    NodeFacts facts;
    NodeMeasures measures;
};

struct Machine {
    std::string program;       // "": none; else its libraries are looked at, too
    std::string version = {};  // of slurm-dp
    Depth depth = Depth::all;
    std::string temporary = {};  // the folder for temporary files; "": that of TMPDIR, else /tmp
    std::string address = {};    // of this machine for others; "": as its name resolves
    bool has_gpus = true;  // whoever is to run here; else faults of GPUs and RDMA adapters are none of his
    // Those that may be kept busy for a moment with Depth::measured, as in CUDA_VISIBLE_DEVICES; "all", or "": none.
    std::string cuda_devices = {};
    // Except in tests these are the machine's own.
    std::string root = {};
    std::string nvml = "libnvidia-ml.so.1", cuda = "libcuda.so.1";
    std::string scontrol = "scontrol";
};

Examination examine_machine(const Machine& machine);

// For other nodes of a step.
wire::NodeExamination message_of(const Examination& examination);
Examination examination_of(const wire::NodeExamination& message);

}  // namespace dp::doctor
