// SPDX-License-Identifier: Apache-2.0
//
// The engine's clock. It stands still while the daemon does (scontrol suspend stops it with its ranks,
// SIGSTOP), so that no deadline passes while nobody could have kept it. Pure.
#pragma once

#include "engine/time.hpp"

namespace dp {

// The loop asks every second. Who has not asked for this long was stopped.
inline constexpr Time kStoodStill{3000};

class StepClock {
 public:
    explicit StepClock(Time steady) : last_(steady) {}

    // `steady`: of the system's steady clock, never less than before.
    Time at(Time steady) {
        if (steady - last_ >= kStoodStill) stopped_ += steady - last_;
        last_ = steady;
        return steady - stopped_;
    }

 private:
    Time last_;
    Time stopped_{};
};

}  // namespace dp
