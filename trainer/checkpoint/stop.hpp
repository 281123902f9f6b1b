// SPDX-License-Identifier: Apache-2.0
//
// Requests to stop: SIGUSR1 and SIGTERM, which Slurm sends before a time limit, a preemption or a requeue,
// reach each rank at another moment. The ranks agree on the step after which they stop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// Directs both signals to a thread of their own; they still end the process. Call it once, before other
// threads exist, which inherit the mask. No computing thread may run a signal handler: in some of oneDNN's
// matrix products the stack pointer points into the heap (oneDNN's issue 4845, fixed in 3.11.2).
void hold_stop_signals();
// From now on the signals are only recorded, however often they come.
void catch_stop_signals();
// The first one that came; 0: none so far.
int stop_signal();
std::string name_of_signal(int number);

// What the ranks have agreed on after a step.
struct AfterStep {
    int signal = 0;  // for which all ranks stop now; 0: they continue
    bool all_are_free =
        false;  // at this exchange no rank had work in the background; false between exchanges
};

class StopAgreement {
 public:
    // `signal`: as stop_signal(); its result may differ between ranks.
    StopAgreement(std::function<int()> signal, Device& device, Communicator& communicator)
        : signal_(std::move(signal)),
          device_(device),
          communicator_(communicator),
          exchanged_(device.make(Type::f64, {3})) {}

    // Every rank calls after each step. `is_busy`: this one works in the background (a checkpoint is written).
    Result<AfterStep> after_step(bool is_busy = false);

 private:
    using Clock = std::chrono::steady_clock;
    std::function<int()> signal_;
    Device& device_;
    Communicator& communicator_;
    std::int64_t interval_ = 1, made_ = 0;  // steps from one exchange to the next, and since the last
    Tensor exchanged_;
    Clock::time_point exchanged_at_ = Clock::now();
};

// Pure: after how many steps of that length the ranks exchange again, if the last interval was `interval`:
// about four times a second. The interval grows slowly, up to 64 steps, in case steps become longer.
std::int64_t steps_to_next(std::int64_t interval, double seconds_per_step);

}  // namespace dp::trainer
