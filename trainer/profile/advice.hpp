// SPDX-License-Identifier: Apache-2.0
//
// What would make a training faster, and by how much. Pure rules over what was measured: silent where there is nothing to gain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dp::trainer {

// Less than this factor is not worth a word.
inline constexpr double kWorthAWord = 1.1;

struct Advice {
    std::string text;                  // "threads: ..."
    std::vector<std::string> options;  // that follow it: "--batch-size=64", or "OMP_NUM_THREADS=2"
    double gain = 1;                   // predicted, of samples a second
    std::string leave_out = {};        // an option that was given; "": none
};

// The time of a step of a rank that trains alone, with one thing changed.
struct TimedChoice {
    std::int64_t value = 0;  // threads, or samples of a batch
    double seconds = 0;
};

struct AdviceCase {
    double step = 0;           // seconds, now
    double communication = 0;  // of them, in collectives that --accumulate has less often
    double load = 0;           // of them, waiting for data
    std::int64_t batch = 1, accumulate = 1;
    std::int64_t most_accumulate = 1;  // that the data allows, where sums are made once for all micro-batches
    std::int64_t threads = 1;
    double alone = 0;  // seconds of a step of a rank alone, now; 0: there were no trials
    std::vector<TimedChoice> other_threads, other_batches;
    std::int64_t largest_batch = 0;           // that memory and data allow
    std::optional<double> without_recompute;  // seconds of a step of a rank alone, where it would fit
    std::string untried;                      // why not all was tried; "": it was
};

// Seconds of a step in which this rank neither communicates nor waits for data: what a trial of a rank alone takes.
double own_part(const AdviceCase& now);

// The largest gain first.
std::vector<Advice> advice_for(const AdviceCase& now);

}  // namespace dp::trainer
