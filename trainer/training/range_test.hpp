// SPDX-License-Identifier: Apache-2.0
//
// The learning-rate range test (Smith, "Cyclical Learning Rates for Training Neural Networks", WACV 2017, arXiv:1506.01186): the rate
// rises from step to step. As long as it is too small the loss stands still, then it falls, then it explodes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/base/ranks.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/models/model.hpp"
#include "trainer/training/observer.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

// How the rate rises from step to step: by the same factor, or by the same number.
enum class RateScale { exponential, linear };

struct RangeOptions {
    double lowest = 1e-7, highest = 1;  // learning rates, of the first step and of the last one
    std::int64_t steps = 200;
    RateScale scale = RateScale::exponential;
    double explosion = 4;  // times the smallest smooth loss: what follows says nothing
};

// A step of the test.
struct RatePoint {
    double rate;
    double loss;    // of all ranks' samples, before the step
    double smooth;  // a mean of this one and those before, of which later ones count more
};

struct RangeTest {
    std::vector<RatePoint> points;  // finite; fewer than the steps if the loss has exploded
    bool has_exploded = false;
};

// Pure: the rate of a step, from 1.
double rate_of_range(const RangeOptions& options, std::int64_t step);

// Adds up to the smooth loss: the mean of the losses so far, each of which counts `kKeep` times as much as the one after it.
class SmoothLoss {
 public:
    double add(double loss) {
        sum_ = kKeep * sum_ + loss;
        weight_ = kKeep * weight_ + 1;
        return sum_ / weight_;
    }

 private:
    static constexpr double kKeep = 0.93;
    double sum_ = 0, weight_ = 0;
};

// Pure: the place of the steepest descent of the smooth loss over the logarithm of the rate, before its minimum; nullopt if it does not
// fall by a hundredth.
std::optional<std::size_t> steepest_descent(std::span<const RatePoint> points);

// Every rank calls with the same. The model is not placed yet; what it learns is lost. `settings`: the learning rate in them is not
// used, and nothing is tested or saved.
Result<RangeTest> range_test(const ModelInfo& info, Model& model, const Dataset& data,
                             const Settings& settings, const RangeOptions& options, Device& device,
                             const Ranks& ranks, Observer& observer);

}  // namespace dp::trainer
