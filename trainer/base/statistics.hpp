// SPDX-License-Identifier: Apache-2.0
//
// Statistics of repeated measurements. Used by `trainer measure-performance` and `trainer compile`.
#pragma once

#include <vector>

namespace dp::trainer {

struct Spread {
    double min, p5, median, p95, max;
};

// Pure. Needs at least one number, in any order; percentiles between two numbers are interpolated.
Spread spread_of(std::vector<double> numbers);

}  // namespace dp::trainer
