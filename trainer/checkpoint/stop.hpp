// SPDX-License-Identifier: Apache-2.0
//
// Being asked to stop: SIGUSR1 and SIGTERM, as Slurm sends them before a time limit, for a preemption or a
// requeue, reach each rank at another moment; the ranks agree on the step after which they stop. The training
// loop asks after each step.
#ifndef TRAINER_CHECKPOINT_STOP_HPP
#define TRAINER_CHECKPOINT_STOP_HPP

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// Both signals go to a thread of their own, until the process ends; they still end the process. To be called
// once, while there is no other thread: those that are started later leave the signals to that one, too. No
// thread that computes may run a signal handler: in some of oneDNN's matrix products the stack pointer points
// into the heap, and the kernel would write the handler's frame there (oneDNN's issue 4845, repaired
// in 3.11.2).
void hold_stop_signals();
// From here on they are only noted, however often they come.
void catch_stop_signals();
// The first that came; 0: none has.
int stop_signal();
std::string name_of_signal(int number);

class StopAgreement {
 public:
    // `signal`: as stop_signal(); what it says may differ from rank to rank.
    StopAgreement(std::function<int()> signal, Device& device, Communicator& communicator)
        : signal_(std::move(signal)),
          device_(device),
          communicator_(communicator),
          exchanged_(device.make(Type::f64, {2})) {}

    // The signal for which all ranks stop now; 0: they go on. Every rank calls after each step that it makes.
    // The ranks exchange two numbers, but not after each step: see steps_to_next().
    Result<int> after_step();

 private:
    using Clock = std::chrono::steady_clock;
    std::function<int()> signal_;
    Device& device_;
    Communicator& communicator_;
    std::int64_t interval_ = 1, made_ = 0;  // steps from one exchange to the next, and since the last
    Tensor exchanged_;
    Clock::time_point exchanged_at_ = Clock::now();
};

// Pure: after how many steps of that length the ranks exchange again, where they did so after `interval` of
// them. About four times a second, which costs nothing that can be measured and is soon enough for Slurm;
// slowly at first, and no more than 64 steps, should steps become longer.
std::int64_t steps_to_next(std::int64_t interval, double seconds_per_step);

}  // namespace dp::trainer

#endif
