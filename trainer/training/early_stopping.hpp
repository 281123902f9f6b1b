// SPDX-License-Identifier: Apache-2.0
//
// When a training ends because its tests no longer get better (--early-stopping). Pure: all ranks see the same losses, so they stop
// at the same step. What it knows is a part of Progress: a checkpoint carries it on.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/checkpoint/manifest.hpp"

namespace dp::trainer {

class EarlyStopping {
 public:
    // `patience`: so many tests in a row without a smaller loss than the smallest before; 0: it never ends.
    explicit EarlyStopping(std::int64_t patience) : patience_(patience) {}

    // After `step`. Where more steps were taken than the last test saw, the next one decides: the patience may be less now.
    void resume(const std::optional<BestTest>& best, std::int64_t step) {
        if (patience_ == 0) return;
        best_ = best;
        if (best_ && best_->last_step != step) best_->worse = std::min(best_->worse, patience_ - 1);
    }
    // The test after so many steps of the training. One that was seen before a checkpoint may come again: it counts once.
    void see(std::int64_t step, double loss) {
        if (patience_ == 0 || (best_ && step <= best_->last_step)) return;
        if (!best_ || loss < best_->loss)
            best_ = {loss, step, 0, step};
        else
            best_ = {best_->loss, best_->step, best_->worse + 1, step};
    }

    bool is_due() const { return best_ && best_->worse >= patience_; }
    const std::optional<BestTest>& best() const { return best_; }

    // For people, once it is due.
    std::string line(std::int64_t steps) const {
        return fmt::format(
            "stopped early after step {} of {}: the test loss has not fallen in {} test{}; it was {:.4g} "
            "after step {}",
            best_->last_step, steps, best_->worse, best_->worse == 1 ? "" : "s", best_->loss, best_->step);
    }

 private:
    std::int64_t patience_;
    std::optional<BestTest> best_;
};

}  // namespace dp::trainer
