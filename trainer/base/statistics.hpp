// SPDX-License-Identifier: Apache-2.0
//
// How repeated measurements spread. `trainer measure-performance` and `trainer compile` call it.
#ifndef TRAINER_BASE_STATISTICS_HPP
#define TRAINER_BASE_STATISTICS_HPP

#include <vector>

namespace dp::trainer {

struct Spread {
    double min, p5, median, p95, max;
};

// Pure. Of at least one number, in any order; percentiles between two numbers are interpolated.
Spread spread_of(std::vector<double> numbers);

}  // namespace dp::trainer

#endif
