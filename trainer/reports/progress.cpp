// SPDX-License-Identifier: Apache-2.0
#include "trainer/reports/progress.hpp"

#include <fmt/format.h>

#include <cmath>

namespace dp::trainer {
namespace {

constexpr int kWidth = 20;  // with this the line fits into 80 columns

// "01:03", "2:01:03"
std::string clock_text(double seconds) {
    const auto whole = static_cast<std::int64_t>(seconds);
    const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60;
    if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
    return fmt::format("{:02}:{:02}", minutes, whole % 60);
}

// Steps per second; if slow, seconds per step.
std::string rate_text(double rate) {
    return rate >= 1 ? fmt::format("{:.2f}it/s", rate) : fmt::format("{:.2f}s/it", 1 / rate);
}

}  // namespace

std::string progress_line(const Pace& pace, const Schedule& schedule) {
    const auto share = static_cast<double>(pace.done) / static_cast<double>(schedule.total_steps);
    const bool known = pace.steps > 0 && pace.seconds > 0;
    const double rate = known ? static_cast<double>(pace.steps) / pace.seconds : 0;
    const auto left = static_cast<double>(schedule.total_steps - pace.done);
    return fmt::format("epoch {}/{}  step {}/{}  [{:<{}}] {:3.0f} %  [{}<{}, {}]", pace.epoch,
                       schedule.epochs, pace.done, schedule.total_steps,
                       std::string(static_cast<std::size_t>(std::lround(share * kWidth)), '#'), kWidth,
                       share * 100, clock_text(pace.seconds), known ? clock_text(left / rate) : "?",
                       known ? rate_text(rate) : "?it/s");
}

}  // namespace dp::trainer
