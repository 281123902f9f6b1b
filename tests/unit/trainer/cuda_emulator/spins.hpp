// SPDX-License-Identifier: Apache-2.0
//
// A kernel whose threads wait for ever for what another block writes, which may be one that is not there yet: nothing else would end
// it. What counts is the time that the kernel takes of a CPU, not a clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace dp::cuda_emulator {

// Twice as long without a beat is for ever.
void set_patience(std::chrono::milliseconds patience);

// While it lives, and the caller's thread runs a kernel. `beats` counts what brings a kernel further: barriers that open, threads that
// return.
class Watchdog {
 public:
    explicit Watchdog(const std::uint64_t& beats);
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    ~Watchdog();

 private:
    timer_t timer_{};
};

}  // namespace dp::cuda_emulator
