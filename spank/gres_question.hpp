// SPDX-License-Identifier: Apache-2.0
//
// In srun, for the nodes of a step with --dp-tiles: what slurmctld says of its gres. Used by launcher.cpp.
#pragma once

#include <cstdint>
#include <future>
#include <string>

#include "common/result.hpp"

namespace dp::plugin {

// What the job was given on each of its nodes (kGresVariable): a question of some milliseconds, which may be
// asked while srun has the step created.
class GresQuestion {
 public:
    // Asks, on a thread of its own that takes no signals. Where that cannot be, answer() will ask.
    void ask(uint32_t job_id);
    // Waits for what was asked about this job; else, and where that failed, asks now.
    Try<std::string> answer(uint32_t job_id);

 private:
    uint32_t job_id_ = 0;
    std::future<Try<std::string>> asked_;  // its end waits for the thread
};

// What the step was given of them on a node (kStepGresVariable); "none" for nothing.
Try<std::string> gres_of_step(uint32_t job_id, uint32_t step_id);

}  // namespace dp::plugin
