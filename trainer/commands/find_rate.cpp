// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/find_rate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace dp::trainer {
namespace {

constexpr std::size_t kRows = 24, kWidth = 50;

// A mark where the loss lies between the least and the most.
std::string bar(double loss, double least, double most) {
    const double part = most > least ? std::clamp((loss - least) / (most - least), 0.0, 1.0) : 0;
    return std::string(static_cast<std::size_t>(std::lround(part * (kWidth - 1))), ' ') + "*";
}

std::string advice(const RangeTest& test, const std::optional<std::size_t>& steepest) {
    if (steepest)
        return fmt::format(
            "the loss falls most steeply at --lr {:.2g}{}", test.points[*steepest].rate,
            test.has_exploded ? fmt::format("; it explodes at {:.2g}", test.points.back().rate) : "");
    if (test.has_exploded)
        return "no rate lowers the loss before it explodes; give a smaller --lr-min, or more --lr-steps";
    return "no rate lowers the loss; give a larger --lr-max";
}

}  // namespace

std::string range_text(const RangeTest& test) {
    const auto steepest = steepest_descent(test.points);
    const auto& points = test.points;
    // After an explosion the curve would be all that is seen of the plot: what is above the first loss lies at its edge.
    const double least = std::ranges::min_element(points, {}, &RatePoint::smooth)->smooth,
                 most = std::max(points.front().smooth, least);
    std::string text = fmt::format("  {:<10} {:>10}\n", "rate", "loss");
    const std::size_t every = (points.size() + kRows - 1) / kRows;
    for (std::size_t i = 0; i < points.size(); ++i) {
        const bool is_steepest = steepest == i;
        if (i % every != 0 && !is_steepest && i + 1 != points.size()) continue;
        text += fmt::format("  {:<10.2e} {:>10.4g}  |{}{}\n", points[i].rate, points[i].smooth,
                            bar(points[i].smooth, least, most), is_steepest ? "  <- steepest" : "");
    }
    return text + advice(test, steepest);
}

nlohmann::ordered_json range_json(const RunFacts& facts, const RangeOptions& options, const RangeTest& test) {
    nlohmann::ordered_json json = json_of(facts, "learning_rates");
    json["lr_min"] = options.lowest;
    json["lr_max"] = options.highest;
    json["lr_mode"] = options.scale == RateScale::linear ? "linear" : "exponential";
    json["steps"] = test.points.size();
    json["exploded"] = test.has_exploded;
    if (const auto steepest = steepest_descent(test.points))
        json["steepest_lr"] = test.points[*steepest].rate;
    for (const RatePoint& point : test.points) json["rates"].push_back(point.rate);
    for (const RatePoint& point : test.points) json["losses"].push_back(point.loss);
    json["memory_peak_bytes"] = facts.memory_peak;
    return json;
}

}  // namespace dp::trainer
