// SPDX-License-Identifier: Apache-2.0
#include "record/scalars.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "common/phase_page.hpp"

namespace dp {
namespace {

constexpr uint64_t kLatestStep = uint64_t{1} << 53;  // whole numbers that JSON's readers keep

bool is_finite(const PointOfGeneration& one) {
    return std::isfinite(one.point.value);
}

// NaN compares with nothing.
bool is_lower(const PointOfGeneration& one, const PointOfGeneration& other) {
    if (!is_finite(one) || !is_finite(other)) return is_finite(one) && !is_finite(other);
    return one.point.value < other.point.value;
}

std::tuple<uint32_t, double, int64_t> time_of(const PointOfGeneration& one) {
    return {one.generation, one.point.at, one.point.step};
}

void take_if(std::optional<ScalarPoint>& best, const ScalarPoint& point, const auto& is_better) {
    if (std::isfinite(point.value) && (!best || is_better(point.value, best->value))) best = point;
}

}  // namespace

std::string_view word_of_not_finite(double value) {
    return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

std::vector<PointOfGeneration> thinned(const std::vector<PointOfGeneration>& points) {
    constexpr ptrdiff_t kInARow = 4;
    std::vector<PointOfGeneration> kept;
    auto next = points.begin();  // behind the last that is kept
    const auto keep = [&](auto one) {
        kept.push_back(*one);
        next = one + 1;
    };
    for (auto row = points.begin(); row != points.end();) {
        const auto end = row + std::min<ptrdiff_t>(kInARow, points.end() - row);
        const auto lowest = std::min_element(row, end, is_lower),
                   highest = std::max_element(row, end, is_lower);
        keep(std::min(lowest, highest));
        if (lowest != highest) keep(std::max(lowest, highest));
        row = end;
    }
    if (next != points.end()) kept.push_back(points.back());
    return kept;
}

void ScalarReader::begin_generation(const record::Generation& generation) {
    generation_ = generation.number();
    ranks_.assign(generation.ranks().begin(), generation.ranks().end());
    present_.clear();
}

void ScalarReader::note(const record::Sample& sample, double at) {
    for (const auto& said : sample.scalars()) {
        if (said.task() >= ranks_.size() || said.number() >= kMostScalars) continue;
        Present& present = present_[{said.task(), said.number()}];
        if (is_scalar_name(said.name())) present = {said.name()};
        if (present.name.empty()) continue;
        const ScalarPoint point{at, static_cast<int64_t>(std::min(said.step(), kLatestStep)), said.value()};
        const uint32_t rank = ranks_[said.task()];
        const bool was_finite = std::exchange(present.is_finite, std::isfinite(point.value));
        if (was_finite && !present.is_finite) {
            out_.not_finite.push_back({present.name, rank, generation_, point});
            if (out_.not_finite.size() >= 2 * kMostNotFinite) keep_first_not_finite();
        }
        add(present.name, rank, point);
    }
}

void ScalarReader::add(const std::string& name, uint32_t rank, const ScalarPoint& point) {
    if (series_.size() == kMostScalarNames && !series_.contains(name)) {
        ++out_.left_out;
        return;
    }
    Series& series = series_[name];
    if (series.courses.size() == kMostCourses && !series.courses.contains(generation_)) {
        ++out_.left_out;
        return;
    }
    const auto [found, is_first] =
        series.courses.try_emplace(generation_, Course{rank, point, point, {}, {}});
    Course& course = found->second;
    if (rank > course.rank) return;
    if (rank < course.rank) {
        course = {rank, point, point, {}, {}};
        std::erase_if(series.points, [&](const auto& one) { return one.generation == generation_; });
    }
    course.add(point);
    series.points.push_back({generation_, point});
    if (series.points.size() > most_points_) series.points = thinned(series.points);
}

void ScalarReader::Course::add(const ScalarPoint& point) {
    if (point.at < first.at) first = point;
    if (point.at >= last.at) last = point;
    take_if(lowest, point, std::less());
    take_if(highest, point, std::greater());
}

// The rank where it began is what people look for, whichever node is read first.
void ScalarReader::keep_first_not_finite() {
    std::ranges::sort(out_.not_finite, {},
                      [](const NotFinite& one) { return std::tie(one.point.at, one.rank, one.name); });
    if (out_.not_finite.size() <= kMostNotFinite) return;
    out_.not_finite_left_out += out_.not_finite.size() - kMostNotFinite;
    out_.not_finite.resize(kMostNotFinite);
}

Scalars ScalarReader::take() {
    for (auto& [name, all] : series_) {
        ScalarSeries& one = out_.series.emplace_back();
        one.name = name;
        one.first = all.courses.begin()->second.first;
        one.last = all.courses.rbegin()->second.last;
        for (const auto& [generation, course] : all.courses) {
            if (course.lowest) take_if(one.lowest, *course.lowest, std::less());
            if (course.highest) take_if(one.highest, *course.highest, std::greater());
            one.courses.push_back({generation, course.rank, {}});
        }
        std::ranges::sort(all.points, {}, time_of);
        auto course = one.courses.begin();
        for (const PointOfGeneration& point : all.points) {
            while (course->generation != point.generation) ++course;
            course->points.push_back(point.point);
        }
        std::erase_if(one.courses, [](const auto& empty) { return empty.points.empty(); });
    }
    keep_first_not_finite();
    return std::move(out_);
}

}  // namespace dp
