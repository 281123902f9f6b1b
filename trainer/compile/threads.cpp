// SPDX-License-Identifier: Apache-2.0
#include "trainer/compile/threads.hpp"

#include <algorithm>

#include "trainer/devices/cpu/cpu.hpp"

namespace dp::trainer {
namespace {

// Other programs make a trial slower, never faster: so the best round counts.
constexpr int kRounds = 2;
// Relative to the fastest: this much slower is clearly slower, and even fewer threads need not be tried.
constexpr double kClearlySlower = 1.25, kClearlyFaster = 0.95;
constexpr double kUndisturbed = 0.85;

}  // namespace

std::vector<int> thread_candidates(int threads) {
    std::vector<int> candidates;
    for (int count = threads; count >= 1; count /= 2) candidates.push_back(count);
    return candidates;
}

bool is_disturbed(std::span<const ThreadTrial> trials) {
    return std::any_of(trials.begin(), trials.end(),
                       [](const auto& trial) { return trial.step.share < kUndisturbed; });
}

ThreadTrial best_of(std::span<const ThreadTrial> trials) {
    const auto fastest = *std::min_element(trials.begin(), trials.end(), [](const auto& a, const auto& b) {
        return a.step.seconds < b.step.seconds;
    });
    const bool is_faster = fastest.step.seconds < kClearlyFaster * trials.front().step.seconds;
    return is_faster && !is_disturbed(trials) ? fastest : trials.front();
}

Result<std::vector<ThreadTrial>> try_threads(const Trial& trial, int threads, double seconds) {
    const auto time_with = [&](int count) { return time_steps(trial, *open_cpu(count), seconds); };
    std::vector<ThreadTrial> trials;
    double fastest = 0;
    for (const int count : thread_candidates(threads)) {
        const auto took = DP_TRY(time_with(count));
        trials.push_back({count, took});
        fastest = trials.size() == 1 ? took.seconds : std::min(fastest, took.seconds);
        if (took.seconds > kClearlySlower * fastest) break;
    }
    for (int round = 1; round < kRounds; ++round) {
        for (ThreadTrial& one : trials) {
            const auto took = DP_TRY(time_with(one.threads));
            if (took.seconds < one.step.seconds) one.step = took;
        }
    }
    return trials;
}

}  // namespace dp::trainer
