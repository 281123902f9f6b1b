// SPDX-License-Identifier: Apache-2.0
//
// The scalars that a run's programs have logged (dp_log_scalar; record.proto, Sample.Scalar): of each name the course of the lowest rank that
// logs it, generation by generation; and which ranks had values that are NaN or infinite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record.pb.h"

namespace dp {

// Points of one scalar, of all runs that are shown together; a run has at least the fewer. Names of a run; values that are NaN or infinite.
inline constexpr size_t kMostPoints = 1200, kFewestPoints = 100;
inline constexpr size_t kMostScalarNames = 32, kMostNotFinite = 200, kMostCourses = 5000;

struct ScalarPoint {
    double at = 0;     // seconds since the run began
    int64_t step = 0;  // by the training's own count; 0: it has reported none
    double value = 0;
    bool operator==(const ScalarPoint&) const = default;
};

struct PointOfGeneration {
    uint32_t generation = 0;
    ScalarPoint point;
};
// About half of them, which show best how they went: of four in a row the lowest and the highest, and the last of all. What is NaN or infinite
// counts as highest. Pure.
std::vector<PointOfGeneration> thinned(const std::vector<PointOfGeneration>& points);

struct ScalarSeries {
    std::string name;
    ScalarPoint first, last;
    std::optional<ScalarPoint> lowest, highest;  // the first of these; nothing: no value is finite
    struct Course {
        uint32_t generation = 0, rank = 0;
        std::vector<ScalarPoint> points;  // by time; not all, if there are many
    };
    std::vector<Course> courses;  // by generation
};

// From here on a rank's value was NaN or infinite.
struct NotFinite {
    std::string name;
    uint32_t rank = 0, generation = 0;
    ScalarPoint point;
};

struct Scalars {
    std::vector<ScalarSeries> series;  // by name
    size_t left_out = 0;  // values of names beyond kMostScalarNames, or generations beyond kMostCourses
    std::vector<NotFinite> not_finite;  // by time
    size_t not_finite_left_out = 0;
};

// What is NaN or infinite, in words: "NaN", "Infinity", "-Infinity".
std::string_view word_of_not_finite(double value);

// Takes what the nodes' entries say, node by node. Whatever that is, it stores no more than some multiples of the limits above.
class ScalarReader {
 public:
    explicit ScalarReader(size_t most_points) : most_points_(most_points) {}
    // Of a node, from its next entries on: its ranks by task.
    void begin_generation(const record::Generation& generation);
    // `at`: seconds since the run began.
    void note(const record::Sample& sample, double at);
    Scalars take();

 private:
    struct Course {
        uint32_t rank = 0;
        ScalarPoint first, last;
        std::optional<ScalarPoint> lowest, highest;
        void add(const ScalarPoint& point);
    };
    struct Series {
        std::map<uint32_t, Course> courses;     // by generation
        std::vector<PointOfGeneration> points;  // of these courses
    };
    struct Present {
        std::string name;
        bool is_finite = true;
    };
    size_t most_points_;
    std::map<std::string, Series> series_;
    Scalars out_;
    // Of the present node and generation.
    uint32_t generation_ = 0;
    std::vector<uint32_t> ranks_;
    std::map<std::pair<uint32_t, uint32_t>, Present> present_;  // by task and number

    void add(const std::string& name, uint32_t rank, const ScalarPoint& point);
    void keep_first_not_finite();
};

}  // namespace dp
