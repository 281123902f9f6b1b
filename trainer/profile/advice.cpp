// SPDX-License-Identifier: Apache-2.0
#include "trainer/profile/advice.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace dp::trainer {
namespace {

// Of choices that are nearly as good as the best one, the least is taken.
constexpr double kNearlyAsGood = 0.95;
// Communication may keep this part of a step.
constexpr double kBearable = 0.1;
constexpr std::int64_t kMostAccumulated = 64;

using Rule = std::optional<Advice> (*)(const AdviceCase& now);

// The whole step if this rank's own part changes by the ratio of the two trials, with `data` times as much data to wait for. A
// trial is not quite the training's step: it repeats one batch, in other memory. What is so in both trials cancels, and neither
// adds to the step nor takes from it.
double step_with(const AdviceCase& now, double alone, double data = 1) {
    return now.communication + now.load * data + own_part(now) * alone / now.alone;
}

// "1.8x"
std::string factor(double gain) {
    return fmt::format("about {:.1f}x", gain);
}

// The least of nearly the best; `gain_of` a choice.
template <typename GainOf>
std::optional<std::pair<TimedChoice, double>> best_of(std::vector<TimedChoice> choices,
                                                      const GainOf& gain_of) {
    std::ranges::sort(choices, {}, &TimedChoice::value);
    double best = 0;
    for (const TimedChoice& one : choices) best = std::max(best, gain_of(one));
    if (best < kWorthAWord) return std::nullopt;
    for (const TimedChoice& one : choices)
        if (gain_of(one) >= kNearlyAsGood * best) return std::pair(one, gain_of(one));
    return std::nullopt;
}

std::optional<Advice> threads(const AdviceCase& now) {
    if (now.alone == 0) return std::nullopt;
    const auto best = best_of(now.other_threads,
                              [&](const TimedChoice& one) { return now.step / step_with(now, one.seconds); });
    if (!best) return std::nullopt;
    const auto& [choice, gain] = *best;
    return Advice{
        fmt::format("threads: {} instead of {}: {} as fast", choice.value, now.threads, factor(gain)),
        {fmt::format("OMP_NUM_THREADS={}", choice.value)},
        gain};
}

std::optional<Advice> batch(const AdviceCase& now) {
    if (now.alone == 0) return std::nullopt;
    const auto best = best_of(now.other_batches, [&](const TimedChoice& one) {
        const double times = static_cast<double>(one.value) / static_cast<double>(now.batch);
        return times * now.step / step_with(now, one.seconds, times);
    });
    if (!best) return std::nullopt;
    const auto& [choice, gain] = *best;
    return Advice{fmt::format("batch: {} of {} possible: {} gives {} the samples a second; a larger batch "
                              "may want another --lr",
                              now.batch, now.largest_batch, choice.value, factor(gain)),
                  {fmt::format("--batch-size={}", choice.value)},
                  gain};
}

// Sums are made once for several batches.
std::optional<Advice> accumulate(const AdviceCase& now) {
    if (now.communication < kBearable * now.step) return std::nullopt;
    const auto with = [&](std::int64_t times) {
        return now.step - now.communication * (1 - 1 / static_cast<double>(times));
    };
    const std::int64_t most = std::min(kMostAccumulated, now.most_accumulate / now.accumulate);
    std::int64_t times = 2;
    while (2 * times <= most && now.communication / static_cast<double>(times) > kBearable * with(times))
        times *= 2;
    if (times > most) return std::nullopt;
    const double gain = now.step / with(times);
    if (gain < kWorthAWord) return std::nullopt;
    return Advice{
        fmt::format("communication: {:.0f} % of a step waits for it: --accumulate={} makes that {:.0f} %, {} "
                    "the samples a second; "
                    "the global batch grows with it",
                    100 * now.communication / now.step, now.accumulate * times,
                    100 * now.communication / static_cast<double>(times) / with(times), factor(gain)),
        {fmt::format("--accumulate={}", now.accumulate * times)},
        gain};
}

std::optional<Advice> recompute(const AdviceCase& now) {
    if (!now.without_recompute || now.alone == 0) return std::nullopt;
    const double gain = now.step / step_with(now, *now.without_recompute);
    if (gain < kWorthAWord) return std::nullopt;
    return Advice{fmt::format("memory: this fits without --recompute, which is {} as fast", factor(gain)),
                  {},
                  gain,
                  "--recompute"};
}

}  // namespace

double own_part(const AdviceCase& now) {
    return std::max(now.step - now.communication - now.load, 0.0);
}

std::vector<Advice> advice_for(const AdviceCase& now) {
    std::vector<Advice> all;
    if (now.step <= 0) return all;
    for (const Rule rule : {threads, batch, accumulate, recompute})
        if (auto advice = rule(now)) all.push_back(std::move(*advice));
    std::ranges::stable_sort(all, std::greater(), &Advice::gain);
    return all;
}

}  // namespace dp::trainer
